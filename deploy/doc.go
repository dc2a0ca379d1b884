// Package deploy holds no code: beside it are what runs nodes of a cluster on
// real machines (systemd, Kubernetes, three example configurations), and its
// tests hold these to the programs.
package deploy
