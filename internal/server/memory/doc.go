// Package memory is the registered memory of a node.
//
//   - Regions is what the store's data lives in and clients READ: each region is registered
//     with each device, REMOTE_READ and nothing else.
//   - Turnover renews the rkeys of regions and gives empty regions back. An old registration
//     goes only when a lease is over and every session that may READ by it has said that it
//     will not, or is gone: a Follower stands for a session there. rotate.go says why both.
//   - Staging is what large values of clients are READ into, bounded for a space, for the
//     node and for each tenant; puts that find none wait in line (StageLine).
//
// It knows no session, no tenant and no store: what it needs of them are Reader,
// base.Account and Store.
package memory
