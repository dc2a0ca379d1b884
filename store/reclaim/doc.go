// Package reclaim keeps retired memory until no reader can still use what stood
// in it.
//
// A client accepts a one-sided result only while the lease that it held when
// its first READ was posted lasts (lease L, measured on its own clock from that
// moment). So memory that was made unreachable at an instant t can be used for
// something else at t + L, with the bound on clock rates on top. For pages of
// items that is not enough, because a client may hold places in them for hours:
// those pages are also listed in a ring in region 0, under a reclaim version
// that stands in the beat line before the wait begins. A client that sees a
// higher version reads the list and drops its places there before it uses the
// lease that the same beat gave it.
//
//	      retire                                     free
//	        │ listed: ring entry, version in beat      │
//	────────┼──────────────┬───────────────────────────┼──────▶ server's clock
//	        │ stamp        │     L + L/100 + one beat  │
//	        └──────────────┴───────────────────────────┘
//
// The package starts no goroutine and reads no clock: the goroutine that beats
// hands the time to Tick.
package reclaim
