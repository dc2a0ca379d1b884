// Package e2e holds tests that run the real programs as real processes: what
// a user would see. "make e2e" runs them.
package e2e
