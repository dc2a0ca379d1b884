package replica

// Counts are what a replica has done, since it was made.
//
// They are counted under the lock of the replica, where what they count happens, so they cost a write nothing that it does not pay already.
type Counts struct {
	// Elected is how often it was elected, and Terms how often it has heard of a later term: of an election, most often. Where Terms rise and
	// Elected stands still at all replicas, nobody gets a majority.
	Elected, Terms uint64
	// Entries are those of writes that it has proposed as the leader and that its engine has taken, and Bytes theirs. One that is proposed
	// again, because a reign began, counts again.
	Entries, Bytes uint64
	// Checks are those that came to a digest here, and Failed those that did not (CheckAt says why).
	Checks, Failed uint64
}

// hears counts a term.
func (c *Counts) hears(before, now uint64) {
	if now > before {
		c.Terms++
	}
}

// checked counts the end of a check.
func (c *Counts) checked(err error) {
	if err != nil {
		c.Failed++
	} else {
		c.Checks++
	}
}

// CountsOf returns those of a replica, as of now. It is safe for concurrent use.
func CountsOf(r *Replica) Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}
