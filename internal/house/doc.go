// Package house holds the tests that keep the repository in order: who may
// import whom, how large a file may be, that every document it links to
// exists. It has no code of its own.
package house
