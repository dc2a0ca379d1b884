package prefetch

import "unsafe"

// LineSize is how many bytes one call of Line fetches, aligned to as many.
const LineSize = 64

// Line has the cache line fetched in which *p begins.
func Line[T any](p *T) { line(unsafe.Pointer(p)) }
