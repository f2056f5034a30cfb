. ./length.sh
[ "$(length 4)" = 12 ] && echo "ok    the tail is three spans"
