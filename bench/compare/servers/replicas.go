package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Replicas are the settings of a cluster of kvservers on which each key is on as many nodes
// as there are.
type Replicas struct {
	Rdmakv
	Client string // path of kvclient
	Nodes  int
	Groups int // of shards; 0: as many as cluster init takes
}

// Start runs the nodes and makes a cluster of them. It returns when each group has a leader.
func (r Replicas) Start(ctx context.Context, at Place) (*Server, error) {
	return again(func() (*Server, error) {
		ports, err := freePorts(r.Nodes)
		if err != nil {
			return nil, err
		}
		s, err := together(r.Nodes, func(i int) (*Server, error) {
			node := r.Rdmakv
			node.More = append(append([]string(nil), node.More...), "--insecure", "--node-id", nodeName(i), "--gossip-bind", "127.0.0.1:"+ports[i],
				"--join", "127.0.0.1:"+ports[(i+1)%len(ports)])
			return node.Start(ctx, at)
		})
		if err != nil {
			return nil, err
		}
		args := []string{"cluster", "init", "--replicas", fmt.Sprint(r.Nodes), "--wait", initLimit.String()}
		if r.Groups > 0 {
			args = append(args, "--groups", fmt.Sprint(r.Groups))
		}
		for i := range r.Nodes {
			args = append(args, nodeName(i))
		}
		// What init says to a person on standard error may be that groups are not at work: the
		// puts of the fill wait for these.
		if _, err := r.ask(ctx, s, args...); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		return s, nil
	})
}

// initLimit is how long nodes may take to find each other, and groups to find their leaders.
const initLimit = 30 * time.Second

// ask runs kvclient and returns what it prints.
func (r Replicas) ask(ctx context.Context, s *Server, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit+initLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Client, append([]string{"--server", s.TCP, "--fabric", "iwarp", "--shm", "off"}, args...)...)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.Dir, cleanEnv(os.Environ()), &out, &said
	cmd.SysProcAttr = Attached()
	cmd.WaitDelay = time.Second
	if err := StartOn(cmd, -1); err != nil {
		return nil, fmt.Errorf("kvclient does not start: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return nil, fmt.Errorf("kvclient %s: %w: %s", strings.Join(args[:2], " "), err, lines[len(lines)-1])
	}
	return out.Bytes(), nil
}

// Leader is the node that leads all groups. That several lead is an error, and that nobody
// leads a group.
func (r Replicas) Leader(ctx context.Context, s *Server) (*Server, error) {
	status, err := r.ask(ctx, s, "cluster", "status", "-o", "json")
	if err != nil {
		return nil, err
	}
	name, err := parseLeader(status)
	if err != nil {
		return nil, err
	}
	for i, one := range s.nodes() {
		if nodeName(i) == name {
			return one, nil
		}
	}
	return nil, fmt.Errorf("node %q leads, and was not started here", name)
}

// parseLeader finds the node that leads all groups in what "kvclient cluster status -o json" prints.
func parseLeader(status []byte) (string, error) {
	var st struct {
		Groups []struct {
			ID     uint32 `json:"id"`
			Leader string `json:"leader"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(status, &st); err != nil {
		return "", fmt.Errorf("the status of the cluster: %w", err)
	}
	if len(st.Groups) == 0 {
		return "", errors.New("the status of the cluster tells of no groups")
	}
	leader := st.Groups[0].Leader
	for _, g := range st.Groups {
		if g.Leader == "" {
			return "", fmt.Errorf("nobody leads group %d", g.ID)
		}
		if g.Leader != leader {
			return "", fmt.Errorf("%s and %s lead groups: the processor time of one leader cannot be told", leader, g.Leader)
		}
	}
	return leader, nil
}
