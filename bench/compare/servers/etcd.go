package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Etcd are the settings of a cluster of etcd. Everything but ports, names and directories is
// etcd's default: each member syncs its log before it answers.
type Etcd struct {
	Members int
}

// Start runs the members. It returns when they have a leader, and each answers.
func (e Etcd) Start(ctx context.Context, at Place) (*Server, error) {
	if _, err := exec.LookPath("etcd"); err != nil {
		return nil, fmt.Errorf("etcd is not installed (Debian: apt-get install etcd-server): %w", err)
	}
	return again(func() (*Server, error) {
		ports, err := freePorts(2 * e.Members)
		if err != nil {
			return nil, err
		}
		var members []string
		for i := range e.Members {
			members = append(members, fmt.Sprintf("%s=http://127.0.0.1:%s", nodeName(i), ports[e.Members+i]))
		}
		return together(e.Members, func(i int) (*Server, error) {
			s, err := at.server("etcd")
			if err != nil {
				return nil, err
			}
			s.TCP = "127.0.0.1:" + ports[i]
			client, peer := "http://"+s.TCP, "http://127.0.0.1:"+ports[e.Members+i]
			args := []string{"--name", nodeName(i), "--data-dir", filepath.Join(s.Dir, "data"),
				"--listen-client-urls", client, "--advertise-client-urls", client,
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
				"--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new"}
			// A member is healthy when it has a leader and has read by it.
			return s, s.run(ctx, args, func() error { return asks("tcp", s.TCP, "GET /health HTTP/1.0\r\n\r\n", "HTTP/1.0 200") })
		})
	})
}
