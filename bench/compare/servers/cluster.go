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

// Cluster are the settings of a cluster of kvservers.
type Cluster struct {
	Rdmakv
	Client   string // path of kvclient
	Nodes    int
	Replicas int // on how many nodes each key is; 1: without groups
	Groups   int // of shards; 0: as many as cluster init takes
}

// Start runs the nodes and makes a cluster of them. It returns when each group has a leader, if
// that does not take too long.
func (c Cluster) Start(ctx context.Context, at Place) (*Server, error) {
	return again(func() (*Server, error) {
		ports, err := freePorts(c.Nodes)
		if err != nil {
			return nil, err
		}
		s, err := together(c.Nodes, func(i int) (*Server, error) {
			node := c.Rdmakv
			node.More = append(append([]string(nil), node.More...), "--insecure", "--node-id", nodeName(i), "--gossip-bind", "127.0.0.1:"+ports[i],
				"--join", "127.0.0.1:"+ports[(i+1)%len(ports)])
			return node.Start(ctx, at)
		})
		if err != nil {
			return nil, err
		}
		args := []string{"cluster", "init", "--replicas", fmt.Sprint(c.Replicas), "--wait", initLimit.String()}
		if c.Groups > 0 {
			args = append(args, "--groups", fmt.Sprint(c.Groups))
		}
		for i := range c.Nodes {
			args = append(args, nodeName(i))
		}
		// Where groups have no leader in time, init says so and is no failure: the puts of the
		// fill wait for these, and fail.
		if _, err := c.ask(ctx, s, args...); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		return s, nil
	})
}

// initLimit is how long nodes may take to find each other, and groups to find their leaders.
const initLimit = 30 * time.Second

// ask runs kvclient and returns what it prints.
func (c Cluster) ask(ctx context.Context, s *Server, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit+initLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Client, append([]string{"--server", s.TCP, "--fabric", "iwarp", "--shm", "off"}, args...)...)
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
func (c Cluster) Leader(ctx context.Context, s *Server) (*Server, error) {
	status, err := c.ask(ctx, s, "cluster", "status", "-o", "json")
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
