// Package prefetch has the processor fetch memory that will be read soon.
//
// A load that misses every cache takes about 100 ns, and a processor has a dozen of them under
// way at once; but a program that follows pointers for one key after the other, with a lock for
// each, gets one at a time, because no load passes the locked instruction of the next lock. What
// is asked for here passes it: it is a hint, it waits for nothing, and changes nothing that a
// program could see. A pointer to memory that is written meanwhile, or is gone, does no harm.
//
// There is an instruction for it on amd64 and arm64. Elsewhere nothing happens.
package prefetch
