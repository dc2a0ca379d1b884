// Package journal opens and replays the log of a store, and is what the commit of writes
// has of it. This file holds the place of the package; its own files take it.
package journal
