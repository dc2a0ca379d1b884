// Package crash cuts the power of machines: a node in a guest of the lab, on a
// disk of its own, killed under a load of puts and deletes again and again. What the node
// does at every single call of the file system is tested in package store.
package crash
