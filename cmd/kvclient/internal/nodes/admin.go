package nodes

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

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// adminCmd is admin. Operations that take a name or nothing, and print what the
// nodes answer, are rows of a table here; the others have functions of their own.
func adminCmd(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "operate nodes: rkeys, tenants, gossip keys",
		Long: `admin asks nodes for what only an operator may: it needs the admin right, which
the main secret has. Answers come by node; exit code 1 if one of them has not
done it, or has not said so, and the text says which.`,
	}
	cmd.AddCommand(adminRotateCmd(a), adminKeysCmd(a))
	for _, c := range []struct {
		op               wire.DocumentKind
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
				// There is one argument or none: the usage line says which.
				return adminAt(cmd.Context(), a, where, c.op, strings.Join(args, ""))
			},
		}
		where.addFlags(sub)
		cmd.AddCommand(sub)
	}
	return cmd
}

// A target says which nodes are meant: all of them, unless some are named. All is
// the default, because most operations are about the cluster: a tenant that is
// revoked at one node only is not revoked.
type target struct {
	nodes []string
	all   bool
}

// addFlags adds the flags that say which nodes are meant. --all is the default; it
// exists for users who want to see it written in a script.
func (t *target) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&t.nodes, "node", nil, "only at these nodes")
	cmd.Flags().BoolVar(&t.all, "all", false, "at all nodes, which is what is done anyway")
}

// find lists the nodes that are meant: those of the map, also where they are away,
// because an operation that has not been done everywhere must be reported as such,
// and those that are alive. A server without a cluster is the node "".
func (t *target) find(ctx context.Context, c *client.Client) (map[string]*admin.Node, error) {
	if t.all && len(t.nodes) > 0 {
		return nil, cli.Usagef("both --all and nodes are given")
	}
	info, err := admin.Of(c).Cluster(ctx)
	if err != nil {
		return nil, err
	}
	// A node without shards that is dead has left for good: it is not asked. A node
	// with shards is expected back, so the report must show that it was not told.
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
			return nil, cli.Usagef("the server is alone: there is no node %q", t.nodes[0])
		}
		ids = []string{""}
	}
	// An id of no known node is a mistake of the caller, found before anything is
	// done.
	nodes := make(map[string]*admin.Node)
	for _, id := range ids {
		if nodes[id], err = admin.Of(c).Node(id); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// An adminReport is the outcome of an operation, by node. A node stands in one of
// the three maps. Nodes and Failed are never missing in JSON; Unknown is, if it is
// empty.
type adminReport struct {
	Op     string                     `json:"op"`
	Nodes  map[string]json.RawMessage `json:"nodes"`  // answers
	Failed map[string]string          `json:"failed"` // why not
	// Unknown are nodes that were asked and did not answer: they may have done it,
	// or do it still.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// ask asks some nodes side by side and sorts the outcomes: answers, refusals, and
// nodes that were asked and did not answer. An operation that was sent and not
// answered may have been done, so it must not stand among those that failed.
func ask(ctx context.Context, a *app.App, nodes map[string]*admin.Node, op wire.DocumentKind, name string) adminReport {
	r := adminReport{Op: op.String(), Nodes: make(map[string]json.RawMessage), Failed: make(map[string]string), Unknown: make(map[string]string)}
	var mu sync.Mutex
	ids := slices.Sorted(maps.Keys(nodes))
	atOnce(len(ids), func(i int) {
		id := ids[i]
		text, err := nodes[id].Do(ctx, op, name)
		mu.Lock()
		defer mu.Unlock()
		switch {
		// The library's "key not found" would be about no key here.
		case errors.Is(err, client.ErrNotFound):
			r.Failed[id] = fmt.Sprintf("there is no %q (kvclient admin tenants lists them)", name)
		case errors.Is(err, client.ErrOutcomeUnknown):
			r.Unknown[id] = doctor.OneLine(err.Error())
		case err != nil:
			r.Failed[id] = doctor.OneLine(a.Explain(err))
		default:
			r.Nodes[id] = text
		}
	})
	return r
}

// adminAt does an operation and prints what came of it.
func adminAt(ctx context.Context, a *app.App, where target, op wire.DocumentKind, name string) error {
	return a.WithClient(ctx, func(c *client.Client) error {
		nodes, err := where.find(ctx, c)
		if err != nil {
			return err
		}
		return showAdmin(a, ask(ctx, a, nodes, op, name))
	})
}

// showAdmin prints the answers; nodes that failed, or did not answer, make the
// error, a line for each.
func showAdmin(a *app.App, r adminReport) error {
	var err error
	if a.Output == "json" {
		err = a.PrintJSON(r)
	} else {
		err = a.Print(adminText(r.Nodes))
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
		// Every operation may be repeated: sent twice, it is done once.
		see := ""
		if r.Op == wire.AdminRevoke.String() || r.Op == wire.AdminAllow.String() {
			see = ", and kvclient admin tenants shows who is revoked"
		}
		err = errors.Join(err, &unheardError{fmt.Sprintf(
			"%s may have been done%s, or be done still: ask again, which does no harm%s (%s)", r.Op, at(id), see, r.Unknown[id])})
	}
	return err
}

// An unheardError says that a node did not answer an operation. It is a
// client.ErrOutcomeUnknown, so that it is never taken for a failure without effect.
type unheardError struct{ text string }

func (e *unheardError) Error() string { return e.text }
func (e *unheardError) Unwrap() error { return client.ErrOutcomeUnknown }

// keyDigest is the form of a digest, by which a gossip key is called where it must
// not be shown. A word that has another form may be a key that was typed by
// mistake.
var keyDigest = regexp.MustCompile(`^[0-9a-f]{8,64}$`)

// adminKeysCmd is admin gossip-keys.
func adminKeysCmd(a *app.App) *cobra.Command {
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
			return adminAt(cmd.Context(), a, where, wire.AdminGossipKeys, name)
		},
	}
	where.addFlags(cmd)
	return cmd
}

// keysRequest checks the words of gossip-keys and makes the request of them. A word
// that may be a key is not repeated in the error: errors end in logs.
func keysRequest(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", cli.Usagef("gossip-keys needs one of: list, reload, use DIGEST, remove DIGEST")
	case (args[0] == "list" || args[0] == "reload") && len(args) == 1:
		return args[0], nil
	// Other programs have such a command, with the key behind it: it is in the
	// history of the shell by now, but need not get into a log as well.
	case args[0] == "add":
		return "", cli.Usagef("a key travels neither on a command line nor over the fabric: write it as a further line into gossip.key_file of every node, then gossip-keys reload")
	case (args[0] == "use" || args[0] == "remove") && len(args) == 2:
		if !keyDigest.MatchString(args[1]) {
			return "", cli.Usagef("gossip-keys %s wants a digest as gossip-keys list shows it, and never a key", args[0])
		}
		return args[0] + " " + args[1], nil
	}
	hint := ""
	if n := config.Nearest(args[0], keysWords()); n != "" && n != args[0] {
		hint = fmt.Sprintf("; did you mean %q?", n)
	}
	return "", cli.Usagef("gossip-keys needs one of: list, reload, use DIGEST, remove DIGEST%s", hint)
}

// keysWords are the words that gossip-keys takes.
func keysWords() []string { return []string{"list", "reload", "use", "remove"} }
