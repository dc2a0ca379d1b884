// Package house holds the tests that keep the repository in order: which
// package may import which, how large files, types and packages may be, and
// that every document that is linked to exists. It has no code of its own.
package house
