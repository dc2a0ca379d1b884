// Package backup is what a backup of a cluster with replicas consists of, and where it stands: a directory or a bucket of an S3-compatible
// store. It knows nothing of the cluster; kvclient copies from it and to it.
//
//	TARGET/rdmakv-backups         the mark: which cluster's backups these are (Mark)
//	TARGET/pieces/3f/3fa9…        pieces, each named by the SHA-256 of its bytes (Piece)
//	TARGET/backups/ID             manifests: one of each backup, written last (Manifest)
//
// A backup is there when its manifest is: a run that was cut short leaves pieces alone, which are no backup, and which the next run finds and
// does not write again. Pieces are shared by all backups of a target, and never change. Nothing here deletes anything.
//
// # Where pieces end
//
// A piece has records of one shard, in the order of their keys. It ends behind a key that chance (a hash of the key alone) has chosen, so that a key which
// was written, came or went since the last backup makes its own piece another one and leaves the others as they are. If pieces ended by
// size alone, one new key would move the ends of all pieces behind it, and all would be written again.
package backup
