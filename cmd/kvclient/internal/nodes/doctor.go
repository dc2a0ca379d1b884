package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/client/admin"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/fabric"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/config"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/internal/secret"
	"github.com/rdmakv/rdmakv/internal/wire"
	"github.com/rdmakv/rdmakv/store/region"
)

// Roles of the machine that doctor examines.
const (
	roleAuto   = "auto"
	roleNode   = "node"
	roleClient = "client"
)

// doctorCmd is doctor. It loads the configuration by itself, and not as other
// commands do, because a wrong configuration may be what a user is looking for: it
// is a finding, and no wrong usage.
func doctorCmd(a *app.App) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:        "doctor [HOST:PORT...]",
		SuggestFor: []string{"diagnose", "check"},
		Short:      "examine this machine, its configuration and the way to the other nodes",
		Long: `doctor examines step by step what a node or a client rests on, and names the
step that fails, why, and what to do: kernel modules and libraries, devices,
ports, GIDs, MTU, locked memory, huge pages, control groups, clocks, key files,
the data directory, the ports to listen at, then for each peer its name, its
gossip and data ports, a session, messages, one-sided READs, small and large,
and its clock; of a cluster with replicas whether each group has a leader and a
majority, how many nodes may be lost, and which replicas lag. It needs no running node, and changes nothing.

It reads the configuration of the node too: run it with the node's --config (or
flags) and as the node's user. Peers are the data addresses that are given, else
--server; if they are of a cluster, all its nodes. Gossip ports are those of
--join. A step that waits for somebody ends after half of --timeout, 5 s at least.

Each line begins with ok, warn, FAIL or skip, and has a code of what is wrong
that does not change between versions; -o json is the same for scripts.
Exit codes: 0 nothing failed (there may be warnings), 1 something failed, 2
wrong usage.`,
		Args: cobra.ArbitraryArgs,
		// Instead of the root's: a configuration that is wrong is a finding.
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.Output != "text" && a.Output != "json" {
				return cli.Usagef("--output is %q, want text or json", a.Output)
			}
			if role != roleAuto && role != roleNode && role != roleClient {
				return cli.Usagef("--role is %q, want auto, node or client", role)
			}
			a.Started = true
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return examine(a, cmd, role, args) },
	}
	cmd.Flags().StringVar(&role, "role", roleAuto, "what this machine is: node, client, or auto: a node if the configuration has a key of kvserver's")
	addServerFlags(cmd.Flags())
	cli.Complete(cmd)
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{roleAuto, roleNode, roleClient}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// addServerFlags adds the flags that kvserver has and kvclient has not.
func addServerFlags(to *pflag.FlagSet) {
	mine, theirs := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(mine, config.ForClient)
	config.AddFlags(theirs, config.ForServer)
	theirs.VisitAll(func(f *pflag.Flag) {
		if mine.Lookup(f.Name) == nil {
			to.AddFlag(f)
		}
	})
}

// examine runs package internal/doctor over the settings and prints its report. If
// the configuration cannot be read, only its faults are reported.
func examine(a *app.App, cmd *cobra.Command, role string, args []string) error {
	settings, pre, usable := doctorSettings(a, cmd, role, args)
	report := &doctor.Report{Role: role, Good: true, Steps: []doctor.Step{}}
	if usable {
		host := doctor.This()
		host.Dial = func(ctx context.Context, addr string) (doctor.Peer, error) { return dialDirect(ctx, a, addr) }
		// Half of --timeout, as the help says: a user whose network is slow has
		// raised it, and a peer that is slow is not away.
		host.Patience = max(host.Patience, a.Config.Timeout/2)
		report = doctor.Run(cmd.Context(), host, pre, settings)
	} else {
		report.Add(pre...)
	}
	var err error
	if a.Output == "json" {
		err = a.PrintJSON(report)
	} else {
		err = a.Print(report.Text())
	}
	if err == nil && !report.Good {
		return app.ErrFailed
	}
	return err
}

// doctorSettings loads the configuration; its faults are the first findings. If it
// cannot be read nothing else is examined.
func doctorSettings(a *app.App, cmd *cobra.Command, role string, args []string) (s doctor.Settings, found []doctor.Step, usable bool) {
	opt := config.Options{Scope: config.ForClient, File: a.File, Flags: cmd.Flags(), Env: a.Env}
	loaded, err := config.Load(opt)
	if err != nil {
		return s, configSteps(err, nil), false
	}
	a.Config = loaded
	// The file was read as a client's; a node's has further keys, with checks of
	// their own.
	node := role == roleNode || role == roleAuto && hasServerKeys(loaded)
	if node { // a node's configuration must also be safe
		opt.Scope, opt.File = config.ForClient|config.ForServer, loaded.File
		_, err = config.Load(opt)
		found = configSteps(err, found)
	}
	if len(found) == 0 {
		file := loaded.File
		if file == "" {
			file = "no file"
		}
		found = append(found, doctor.Step{Name: "configuration", Subject: file, Level: doctor.OK, Text: describeRole(loaded, node)})
	}
	s = settingsOf(cmd.Context(), a, loaded, node, args)
	// A file that holds a secret is looked at by a step of its own, among the key
	// files.
	if loaded.SecretFile == "" {
		found = configSteps(s.NoSession, found) // that of the environment
	}
	if node && loaded.Gossip.KeyFile == "" {
		found = configSteps(s.NoGossip, found)
	}
	return s, found, true
}

// configSteps makes a finding of each fault.
func configSteps(err error, found []doctor.Step) []doctor.Step {
	var faults config.Faults
	switch {
	case err == nil:
	case errors.As(err, &faults):
		for _, f := range faults {
			found = append(found, doctor.Step{Name: "configuration", Subject: f.Key, Level: doctor.Fail, Code: doctor.CodeConfig, Text: f.String(),
				Do: "correct it; config.yaml of the project documents every key"})
		}
	default: // the file as a whole: it is not there, or is no YAML
		found = append(found, doctor.Step{Name: "configuration", Level: doctor.Fail, Code: doctor.CodeConfig, Text: err.Error()})
	}
	return found
}

// hasServerKeys reports whether a file, a variable or a flag has set a key of
// kvserver's. Then this machine is taken for one of a node.
func hasServerKeys(l *config.Loaded) bool {
	for _, k := range config.Keys() {
		if k.Scope == config.ForServer && l.Sources[k.Name] != "default" {
			return true
		}
	}
	return false
}

// describeRole says what the configuration makes of this machine, so that a user
// whose file was not found sees it in the first line.
func describeRole(l *config.Loaded, node bool) string {
	switch {
	case !node:
		return "a client of " + strings.Join(l.Servers, ", ")
	case l.Clustered():
		return fmt.Sprintf("node %s of the cluster %s", l.NodeID, l.ClusterName())
	}
	return "a node alone (gossip.bind is empty)"
}

// settingsOf translates the configuration into plain values: package
// internal/doctor knows neither configuration files nor secrets, only which of the
// secrets are weak.
func settingsOf(ctx context.Context, a *app.App, l *config.Loaded, node bool, args []string) doctor.Settings {
	s := doctor.Settings{
		Node: node, Fabric: l.Fabric, Devices: l.Device, RequireRDMA: l.RequireRDMA, VerbsConnect: l.VerbsConnect,
		GIDIndex: l.GIDIndex, PathMTU: l.Expert.PathMTU,
		NodeID: l.NodeID, DataDir: l.DataDir, Cache: l.Mode == "cache", Listen: l.Listen, Admin: l.AdminListen,
		MaxSessions: l.MaxSessions, TLS: doctor.TLS{Cert: l.TLS.Cert, Key: l.TLS.Key, CA: l.TLS.CA},
		MemoryLimit: uint64(l.MemoryLimit), HugePages: l.HugePages,
		Gossip: l.Gossip.Bind, Advertise: l.Gossip.Advertise, Join: l.Gossip.Join, Cluster: l.ClusterName(),
	}
	items, index := region.SizesFor(s.MemoryLimit)
	s.RegionSize, s.IndexRegion = cmp.Or(uint64(l.Expert.RegionSize), items), cmp.Or(uint64(l.Expert.IndexRegionSize), index)
	main, secretErr := l.Secret()
	s.NoSession = secretErr
	if len(main) > 0 && secret.New(main).Weak() {
		whose := "secret_file"
		if l.SecretFile == "" {
			whose = config.EnvSecret
		}
		s.WeakSecrets = append(s.WeakSecrets, whose)
	}
	var tenants []config.Tenant
	var tenantsErr error
	if node {
		tenants, tenantsErr = l.Tenants(a.Env)
	}
	for _, t := range tenants {
		if secret.New(t.Secret()).Weak() {
			s.WeakSecrets = append(s.WeakSecrets, "tenant "+t.Name)
		}
	}
	keys, keysErr := l.GossipKeys()
	s.GossipKeys, s.NoGossip = keys, keysErr
	for _, f := range []struct {
		key, path string
		secret    bool
		server    bool
		err       error
	}{
		{"secret_file", l.SecretFile, true, false, secretErr},
		{"gossip.key_file", l.Gossip.KeyFile, true, true, keysErr},
		{"tenants_file", l.TenantsFile, false, true, tenantsErr},
		{"tls.cert", l.TLS.Cert, false, false, nil},
		{"tls.key", l.TLS.Key, true, false, nil},
		{"tls.ca", l.TLS.CA, false, false, nil},
	} {
		if f.path != "" && (node || !f.server) {
			s.Files = append(s.Files, doctor.KeyFile{Key: f.key, Path: f.path, Secret: f.secret, Err: f.err})
		}
	}
	if node {
		for _, addr := range l.Listen {
			r := fabric.ListenReport(ctx, a, addr)
			s.Ways = append(s.Ways, doctor.Way{Address: addr, Listen: true, Use: r.Use, Not: r.Not})
		}
	}
	// The servers that were named are asked. A node that was told of no servers has
	// only itself to ask, and need not run for that: it is no fault then.
	switch {
	case len(args) > 0:
		s.Peers = args
	case !node || l.Sources["servers"] != "default":
		s.Peers = l.Servers
	default:
		s.SelfPeers = l.Listen // if it runs
	}
	for _, addr := range s.Peers {
		r := fabric.ConnectReport(ctx, a, addr)
		s.Ways = append(s.Ways, doctor.Way{Address: addr, Use: r.Use, Not: r.Not})
	}
	return s
}

// dialDirect makes a session with the node at an address, and no other: the way to
// this one is examined, so the library must neither go on to other nodes nor try
// for long. The caller closes it.
func dialDirect(ctx context.Context, a *app.App, addr string) (doctor.Peer, error) {
	cfg, err := a.ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.Servers, cfg.Direct = []string{addr}, true
	cfg.DialOnce = true
	cfg.DialTimeout = max(client.DefaultDialTimeout, cfg.Timeout/2)
	if a.Config.LogLevel != "debug" {
		cfg.Logger = nil // the findings say what it would log
	}
	c, err := client.Dial(ctx, cfg)
	if err != nil { // not c: a nil *client.Client in a Peer is no nil Peer
		return nil, err
	}
	node, err := admin.Of(c).Node("")
	if err != nil {
		c.Close()
		return nil, err
	}
	return doctorPeer{node, c}, nil
}

// A doctorPeer is a session through which doctor asks the node, as an operator
// does.
type doctorPeer struct {
	*admin.Node
	c *client.Client
}

// Close implements doctor.Peer.
func (p doctorPeer) Close() error { return p.c.Close() }

// Cluster implements doctor.Clustered.
func (p doctorPeer) Cluster(ctx context.Context) (admin.ClusterInfo, error) {
	return admin.Of(p.c).Cluster(ctx)
}

// status is what the node says of itself.
func (p doctorPeer) status(ctx context.Context) (st wire.NodeStatus, err error) {
	text, err := p.Do(ctx, wire.AdminStatus, "")
	if err == nil {
		err = json.Unmarshal(text, &st)
	}
	return st, err
}

// Groups implements doctor.Replicating.
func (p doctorPeer) Groups(ctx context.Context) ([]admin.GroupStatus, error) {
	st, err := p.status(ctx)
	return st.Groups, err
}

// Gossip implements doctor.Gossiping.
func (p doctorPeer) Gossip(ctx context.Context) (doctor.Gossip, error) {
	st, err := p.status(ctx)
	if err != nil {
		return doctor.Gossip{}, err
	}
	if st.Gossip == nil {
		return doctor.Gossip{}, errors.New("it is alone, and no node of a cluster")
	}
	return doctor.Gossip{Node: st.NodeID, Cluster: st.ClusterName, Keys: st.Gossip.KeyDigests, TCPOnly: st.Gossip.TCPOnly}, nil
}
