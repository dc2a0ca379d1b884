package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

func (a *app) adminCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "operate nodes: rkeys, tenants, gossip keys",
		Long: `admin asks nodes for what only an operator may: it needs the admin right, which
the main secret has. Answers come by node; exit code 1 if one of them has not
done it, or has not said so, and the text says which.`,
	}
	cmd.AddCommand(a.adminRotateCmd(), a.adminKeysCmd())
	for _, c := range []struct {
		op               wire.AdminOp
		use, short, long string
	}{
		{wire.AdminRevoke, "revoke TENANT", "end a tenant's sessions and refuse new ones",
			"revoke ends all sessions of a tenant within a second, their queue pairs torn down, and\nrefuses new ones, also after a restart. A node that is down now is not told: run it\nagain when it is back."},
		{wire.AdminAllow, "allow TENANT", "take a revocation back", "allow takes back what revoke did."},
		{wire.AdminTenants, "tenants", "list tenants, their rights and what they use", "tenants lists the logins of each node, never their secrets."},
		{wire.AdminLimits, "limits", "show the limits in force", "limits shows what is allowed before and after authentication, and what is used."},
	} {
		var where target
		sub := &cobra.Command{
			Use: c.use, Short: c.short, Long: c.long, ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.adminAt(cmd.Context(), where, c.op, strings.Join(args, ""))
			},
		}
		where.addFlags(sub)
		cmd.AddCommand(sub)
	}
	return cmd
}

// A target says which nodes are meant: all of them, unless some are named.
type target struct {
	nodes []string
	all   bool
}

func (t *target) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&t.nodes, "node", nil, "only at these nodes")
	cmd.Flags().BoolVar(&t.all, "all", false, "at all nodes, which is what is done anyway")
}

// find lists the nodes that are meant: those of the map and those that are
// alive; a server that is alone is the node "".
func (t *target) find(ctx context.Context, c *client.Client) (map[string]*client.Node, error) {
	if t.all && len(t.nodes) > 0 {
		return nil, usagef("both --all and nodes are given")
	}
	info, err := c.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	ids := t.nodes
	if len(ids) == 0 {
		for _, n := range info.Nodes {
			if n.Weight > 0 || n.State == "alive" || n.State == "suspect" {
				ids = append(ids, n.ID)
			}
		}
	}
	if !info.Clustered {
		if len(t.nodes) > 0 {
			return nil, usagef("the server is alone: there is no node %q", t.nodes[0])
		}
		ids = []string{""}
	}
	nodes := make(map[string]*client.Node)
	for _, id := range ids {
		if nodes[id], err = c.Node(id); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// An adminReport is what came of an operation, by node.
type adminReport struct {
	Op     string                     `json:"op"`
	Nodes  map[string]json.RawMessage `json:"nodes"`  // answers
	Failed map[string]string          `json:"failed"` // why not
	// Unknown are nodes that were asked and did not answer: they may have done it,
	// or do it still.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// ask asks some nodes side by side.
func (a *app) ask(ctx context.Context, nodes map[string]*client.Node, op wire.AdminOp, name string) adminReport {
	r := adminReport{Op: op.String(), Nodes: make(map[string]json.RawMessage), Failed: make(map[string]string), Unknown: make(map[string]string)}
	var mu sync.Mutex
	ids := slices.Sorted(maps.Keys(nodes))
	atOnce(len(ids), func(i int) {
		id := ids[i]
		text, err := nodes[id].Admin(ctx, op, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, client.ErrNotFound):
			r.Failed[id] = fmt.Sprintf("there is no %q (kvclient admin tenants lists them)", name)
		case errors.Is(err, client.ErrOutcomeUnknown):
			r.Unknown[id] = doctor.OneLine(err.Error())
		case err != nil:
			r.Failed[id] = doctor.OneLine(a.explain(err))
		default:
			r.Nodes[id] = text
		}
	})
	return r
}

// adminAt does an operation and prints what came of it.
func (a *app) adminAt(ctx context.Context, where target, op wire.AdminOp, name string) error {
	return a.withClient(ctx, func(c *client.Client) error {
		nodes, err := where.find(ctx, c)
		if err != nil {
			return err
		}
		return a.showAdmin(a.ask(ctx, nodes, op, name))
	})
}

// showAdmin prints answers; nodes that failed make the error.
func (a *app) showAdmin(r adminReport) error {
	var err error
	if a.output == "json" {
		err = a.printJSON(r)
	} else {
		err = a.print(adminText(r.Nodes))
	}
	at := func(id string) string {
		if id == "" {
			return ""
		}
		return " at " + id
	}
	for _, id := range slices.Sorted(maps.Keys(r.Failed)) {
		err = errors.Join(err, fmt.Errorf("%s was not done%s: %s", r.Op, at(id), r.Failed[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(r.Unknown)) {
		see := ""
		if r.Op == wire.AdminRevoke.String() || r.Op == wire.AdminAllow.String() {
			see = ", and kvclient admin tenants shows who is revoked"
		}
		err = errors.Join(err, &unheardError{fmt.Sprintf(
			"%s may have been done%s, or be done still: ask again, which does no harm%s (%s)", r.Op, at(id), see, r.Unknown[id])})
	}
	return err
}

// An unheardError is what came of an operation that a node did not answer: a
// client.ErrOutcomeUnknown.
type unheardError struct{ text string }

func (e *unheardError) Error() string { return e.text }
func (e *unheardError) Unwrap() error { return client.ErrOutcomeUnknown }

func (a *app) adminRotateCmd() *cobra.Command {
	var where target
	var noWait bool
	cmd := &cobra.Command{
		Use:   "rotate-rkeys [NODE...]",
		Short: "give every region another rkey, while clients read",
		Long: `rotate-rkeys registers each region anew, tells clients and the other nodes of the
new rkeys, and takes the old ones away once no session uses them. No get fails.
It comes back when the old rkeys are gone (or at once, with --no-wait).

In a cluster say which nodes, or --all.`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			where.nodes = args
			return a.withClient(cmd.Context(), func(c *client.Client) error { return a.rotate(cmd.Context(), c, where, noWait) })
		},
	}
	cmd.Flags().BoolVar(&where.all, "all", false, "at all nodes")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "begin, and do not wait for the end")
	return cmd
}

// rotation is a node's answer, as far as it is looked at here.
type rotation struct {
	Running bool `json:"running"`
	Spaces  []struct {
		Space   string `json:"space"`
		Regions int    `json:"regions"`
		Renewed int    `json:"renewed"`
		Old     int    `json:"old"`
		Error   string `json:"error"`
	} `json:"spaces"`
}

// rotate begins at all nodes and asks until each is done.
func (a *app) rotate(ctx context.Context, c *client.Client, where target, noWait bool) error {
	info, err := c.Cluster(ctx)
	if err != nil {
		return err
	}
	if info.Clustered && !where.all && len(where.nodes) == 0 {
		return usagef("rotate-rkeys in a cluster: name nodes, or --all")
	}
	nodes, err := where.find(ctx, c)
	if err != nil {
		return err
	}
	r := a.ask(ctx, nodes, wire.AdminRotate, "start")
	for !noWait {
		waiting := make(map[string]*client.Node)
		for id, text := range r.Nodes {
			var state rotation
			if err := json.Unmarshal(text, &state); err != nil {
				r.Failed[id] = err.Error()
			} else if state.Running {
				waiting[id] = nodes[id]
			} else {
				for _, s := range state.Spaces {
					if s.Error != "" {
						r.Failed[id] = fmt.Sprintf("space %s: %s", s.Space, doctor.OneLine(s.Error))
					}
				}
			}
		}
		if len(waiting) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
		next := a.ask(ctx, waiting, wire.AdminRotate, "status")
		maps.Copy(r.Nodes, next.Nodes)
		maps.Copy(r.Unknown, next.Failed) // it has begun; how it ends was not heard
		for id := range next.Failed {
			delete(r.Nodes, id)
		}
	}
	return a.showAdmin(r)
}

// keyDigest is what a gossip key is called where it must not be shown.
var keyDigest = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

func (a *app) adminKeysCmd() *cobra.Command {
	var where target
	cmd := &cobra.Command{
		Use:   "gossip-keys list|reload|use|remove [DIGEST]",
		Args:  cobra.ArbitraryArgs, // keysRequest
		Short: "change the keys of gossip while the cluster runs",
		Long: `gossip-keys works with the keys that gossip is encrypted with. A key itself never
stands on a command line and never travels over the fabric, which cannot hide it;
here keys are called by their digests.

  list              which keys each node has, and which is in use
  reload            each node reads its gossip.key_file again
  use DIGEST        seal with this key from now on
  remove DIGEST     forget this key

To change keys: write the new one as a second line into gossip.key_file on every
node; reload; use its digest; take the old line out on every node; reload again.`,
		ValidArgs: keysWords(),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := keysRequest(args)
			if err != nil {
				return err
			}
			return a.adminAt(cmd.Context(), where, wire.AdminGossipKeys, name)
		},
	}
	where.addFlags(cmd)
	return cmd
}

// keysRequest checks the words of gossip-keys. What looks like a key is not
// repeated in the error.
func keysRequest(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", usagef("gossip-keys needs one of: list, reload, use DIGEST, remove DIGEST")
	case (args[0] == "list" || args[0] == "reload") && len(args) == 1:
		return args[0], nil
	case args[0] == "add":
		return "", usagef("a key travels neither on a command line nor over the fabric: write it as a further line into gossip.key_file of every node, then gossip-keys reload")
	case (args[0] == "use" || args[0] == "remove") && len(args) == 2:
		if !keyDigest.MatchString(args[1]) {
			return "", usagef("gossip-keys %s wants a digest as gossip-keys list shows it, and never a key", args[0])
		}
		return args[0] + " " + args[1], nil
	}
	hint := ""
	if n := config.Nearest(args[0], keysWords()); n != "" && n != args[0] {
		hint = fmt.Sprintf("; did you mean %q?", n)
	}
	return "", usagef("gossip-keys needs one of: list, reload, use DIGEST, remove DIGEST%s", hint)
}

// keysWords are the words that gossip-keys takes.
func keysWords() []string { return []string{"list", "reload", "use", "remove"} }
