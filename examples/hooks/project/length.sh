# length SPAN: how long the tail of a kite is, in spans
length() {
    echo $(($1 * 2))
}
