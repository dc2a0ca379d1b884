package verbs

import (
	"net/netip"

	"github.com/rdmakv/rdmakv/rdma/verbs/ibv"
)

// ExplainGID says which entry of a port's GID table this package uses, and why:
// that of index want, or with -1 that of the local address (which may be the
// zero Addr), or the best. It looks at nothing but its arguments.
func ExplainGID(gids []ibv.GIDEntry, num uint8, want int, local netip.Addr) (ibv.GIDEntry, string, error) {
	return chooseGID(&port{num: num, gids: gids}, want, local)
}
