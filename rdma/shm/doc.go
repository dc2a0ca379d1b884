// Package shm is the fabric for two processes on one host.
package shm
