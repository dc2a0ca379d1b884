// Package ckpt says when a checkpoint runs, and what happens in the shards when it ends.
// This file holds the place of the package; its own files take it.
package ckpt
