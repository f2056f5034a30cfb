# total PRICE COUNT: what so many of something cost, in cents
total() {
    echo $(($1 + $2))
}
