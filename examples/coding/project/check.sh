# The checks of this project: sh check.sh
. ./price.sh

expect() {
    if [ "$1" = "$2" ]; then echo "ok    $3"; else echo "wrong $3: expected $2, found $1"; failed=1; fi
}

expect "$(total 250 1)" 250 "one of them"
expect "$(total 250 4)" 1000 "four of them"
exit ${failed:-0}
