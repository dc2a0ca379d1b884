// Package simcluster plays whole clusters.
package simcluster
