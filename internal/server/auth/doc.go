// Package auth decides which clients may come in, and what they may do.
//
// A Tenant is what the configuration says of a group of clients; a Login is made from it and never
// changed: another one takes its place when the tenant does, and the old one is gone. The
// Logins of a node find the login that a connection names, and change: by Revoke, Allow and
// Replace. A login is gone before its sessions are ended, and the list of the revoked is on
// disk before that, so that no session slips through and no restart lets a revoked tenant in.
//
// Secrets are compared by the MACs of messages alone (internal/wire), and no error or log
// line of this package has one in it.
package auth
