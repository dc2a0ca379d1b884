// Package outside tests what a program of another module meets: it builds
// examples/read in a module of its own, which knows the repository by a require
// line only, and READs with it from one process to another. It needs no network:
// what the module requires is what the repository itself requires, and is in the
// module cache.
package outside
