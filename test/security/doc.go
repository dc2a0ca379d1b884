// Package security attacks a node from outside, over its fabric: with secrets
// and names that are wrong, with handshakes and messages of others, with true
// rkeys that belong to another tenant, with connections that send nothing. Each
// attack must be refused, and an honest client beside it must notice nothing.
package security
