//go:build race

package mem

// bulk leaves the copy to the words: under the race detector they are atomic loads, and
// memmove beside a writer is a race for it, whatever checksum finds it out.
func bulk(_, _ []byte) bool { return false }
