package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rdmakv/rdmakv/internal/server/groups"
	"github.com/rdmakv/rdmakv/internal/server/member"
	"github.com/rdmakv/rdmakv/internal/server/telemetry"
)

// admin is the port for people and their tools: metrics, health, and where
// Config.Debug says so Go's profiles and the gate. It is plain HTTP without
// authentication, hence on a loopback address unless configured otherwise.
type admin struct {
	srv  *Server
	ln   net.Listener
	http *http.Server
	done chan struct{}
}

// startAdmin listens on Config.AdminListen, if there is one.
func (srv *Server) startAdmin(ctx context.Context) error {
	if srv.cfg.AdminListen == "" {
		return nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", srv.cfg.AdminListen)
	if err != nil {
		return fmt.Errorf("server: admin port (admin_listen): %w", err)
	}
	a := &admin{srv: srv, ln: ln, done: make(chan struct{})}
	a.http = &http.Server{
		Handler: a.handler(),
		// A slow or silent caller holds a connection, nothing else; these end it.
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	srv.admin = a
	go func() {
		defer close(a.done)
		a.http.Serve(&boundedListener{Listener: ln, places: make(chan struct{}, maxAdminConns)})
	}()
	return nil
}

// maxAdminConns bounds the connections to the port: they need no password.
const maxAdminConns = 64

// A boundedListener closes what is beyond its places at once.
type boundedListener struct {
	net.Listener
	places chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &boundedConn{Conn: c, free: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			c.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	free func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.free()
	return err
}

// close ends the port at once. There may be none.
func (a *admin) close() {
	if a == nil {
		return
	}
	a.http.Close()
	<-a.done
}

// AdminAddr is the address of the admin port; nil without one.
func (srv *Server) AdminAddr() net.Addr {
	if srv.admin == nil {
		return nil
	}
	return srv.admin.ln.Addr()
}

// handler is everything that the port answers.
func (a *admin) handler() http.Handler {
	srv := a.srv
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		telemetry.NewCollector(sources{srv}),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	if srv.cfg.Debug {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("POST /debug/handlers/block", func(w http.ResponseWriter, _ *http.Request) {
			srv.BlockHandlers()
			fmt.Fprintln(w, "handlers blocked")
		})
		mux.HandleFunc("POST /debug/handlers/unblock", func(w http.ResponseWriter, _ *http.Request) {
			srv.UnblockHandlers()
			fmt.Fprintln(w, "handlers unblocked")
		})
	}
	return mux
}

// healthz: 200 while the process is worth keeping, 503 once it must be started
// again: its durability is gone, or a handler has not returned for laneSilence.
func (a *admin) healthz(w http.ResponseWriter, _ *http.Request) {
	srv := a.srv
	if err := srv.sick(); err != nil {
		http.Error(w, "failed: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
	for _, line := range srv.devices.ailing() { // another start of the process mends none of it for sure
		fmt.Fprintln(w, line)
	}
}

// readyz: 200 while clients are served, and the node's replicas have caught up once (package groups: Lacking). Filling is no
// reason to send nobody: every key is answered meanwhile, by SEND where need be.
func (a *admin) readyz(w http.ResponseWriter, _ *http.Request) {
	srv := a.srv
	lacking := a.lacking()
	switch {
	case srv.Err() != nil:
		http.Error(w, "failed: "+srv.Err().Error(), http.StatusServiceUnavailable)
	case srv.main.Draining.Load():
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
	case !srv.main.Serving.Load():
		http.Error(w, "starting", http.StatusServiceUnavailable)
	case srv.devices.cutOff():
		http.Error(w, "no device is left by which clients come\n"+strings.Join(srv.devices.ailing(), "\n"), http.StatusServiceUnavailable)
	case len(srv.member.Outside()) > 0:
		http.Error(w, member.OutsideText+fmt.Sprintf(" (%s)", strings.Join(srv.member.Outside(), ", ")), http.StatusServiceUnavailable)
	case len(lacking) > 0:
		http.Error(w, lackingText(lacking), http.StatusServiceUnavailable)
	default:
		a.readyText(w)
		for _, line := range srv.devices.ailing() {
			fmt.Fprintln(w, line)
		}
	}
}

// lacking are the replicas that keep the node from being ready.
func (a *admin) lacking() []groups.Lacking {
	if own := a.srv.owned.Shards(); own != nil {
		return a.srv.groups.Lacking(own.Map)
	}
	return nil
}

// maxLacking bounds the replicas that readyz lists.
const maxLacking = 8

// lackingText says which replicas keep the node from being ready. Clients are served meanwhile by those that have caught up.
func lackingText(list []groups.Lacking) string {
	var b strings.Builder
	b.WriteString("not every replica of this node has what its group has: do not stop another node")
	for i, l := range list {
		switch {
		case i == maxLacking:
			fmt.Fprintf(&b, "\nand %d more", len(list)-i)
			return b.String()
		case l.Group == 0:
			b.WriteString("\n" + l.Why)
		default:
			fmt.Fprintf(&b, "\ngroup %d: %s", l.Group, l.Why)
		}
	}
	return b.String()
}

// readyText says how far a node is that serves.
func (a *admin) readyText(w io.Writer) {
	srv := a.srv
	switch {
	case !srv.owned.Mapped():
		// Ready all the same: this is how the node is reached to be given one.
		fmt.Fprintln(w, "ready, without a shard map: kvclient cluster init NODE...")
		return
	case srv.Filled():
		fmt.Fprintln(w, "ready, filled")
	default:
		if p := srv.main.Fill.Last.Load(); p != nil {
			fmt.Fprintf(w, "ready, filling: %d of %d shards, %d keys\n", p.ShardsFilled, p.Shards, p.Keys)
		} else {
			fmt.Fprintln(w, "ready, filling")
		}
	}
	for _, st := range srv.Spaces() { // of one that has failed, others need not suffer
		switch {
		case st.State == "serving":
		case st.Detail == "":
			fmt.Fprintf(w, "space %s: %s\n", st.Name, st.State)
		default:
			fmt.Fprintf(w, "space %s: %s: %s\n", st.Name, st.State, st.Detail)
		}
	}
}
