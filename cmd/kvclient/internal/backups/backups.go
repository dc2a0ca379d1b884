// Package backups has the commands that back up a cluster with replicas and restore it: cluster backup, restore, backups and verify.
//
//	backups.go   the commands, and where backups stand
//	copy.go      backup: the groups of a cluster become pieces of a target
//	spaces.go    what a backup leaves out
//	restore.go   restore: pieces become keys of another cluster
//	whole.go     values in parts, which stand in several records
//	compare.go   whether a cluster has what a backup has
//	verify.go    verify and backups list: what a target has
package backups

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/cmd/kvclient/internal/app"
	"github.com/rdmakv/rdmakv/internal/backup"
	"github.com/rdmakv/rdmakv/internal/cli"
)

// Commands are the commands below cluster.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{backupCmd(a), restoreCmd(a), listCmd(a), verifyCmd(a)}
}

// A place is where backups stand, as the command line says it.
type place struct{ name, endpoint, region string }

// mostRate is more than any network has, MiB a second.
const mostRate = 1 << 20

// endpointVar names the S3 server where no flag does, as it does for other programs.
const endpointVar = "AWS_ENDPOINT_URL_S3"

// flags adds those that say how a bucket is reached.
func (p *place) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.endpoint, "s3-endpoint", "", "S3 server, https://HOST[:PORT]; http:// without TLS (default $"+endpointVar+", else that of AWS)")
	cmd.Flags().StringVar(&p.region, "s3-region", "", "region of the bucket (default: the server is asked)")
}

// open opens the target. With new a directory need not be there, but what is above it.
func (p *place) open(ctx context.Context, new bool) (backup.Target, error) {
	if p.name == "" {
		return nil, cli.Usagef("the place is empty, and it is a directory or s3://BUCKET/PREFIX")
	}
	if !backup.IsS3(p.name) {
		if p.endpoint != "" || p.region != "" {
			return nil, cli.Usagef("--s3-endpoint and --s3-region are for a bucket, s3://BUCKET/PREFIX, and the place is a directory")
		}
		return backup.OpenDir(p.name, new)
	}
	o := backup.S3Options{Endpoint: p.endpoint, Region: p.region}
	if o.Endpoint == "" {
		o.Endpoint = os.Getenv(endpointVar)
	}
	return backup.OpenS3(ctx, p.name, o)
}

// whence is what the help of each command says of places.
const whence = `

The place is a directory or s3://BUCKET/PREFIX. Credentials of a bucket come from the
environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), ~/.aws/credentials, or the
role of the machine, and never from the command line.`

func backupCmd(a *app.App) *cobra.Command {
	var p place
	r := copying{a: a}
	cmd := &cobra.Command{
		Use:   "backup DIR|s3://BUCKET/PREFIX",
		Short: "back up a cluster with replicas",
		Long: `backup copies all groups of a cluster with replicas, while it is used. Each group is
copied as it was at one entry of its log, so it is consistent in itself; groups are of
different moments. Only what the place does not have is written: the next backup to
the same place writes what has changed. A run that was cut short is no backup, and
the next one goes on with what it has written. Nothing is ever deleted.

Tenants with a prefix have their keys in it. Spaces of tenants are not in it: backup says
which there are.` + whence,
		Args: cobra.ExactArgs(1), SuggestFor: []string{"dump", "snapshot", "save"},
		RunE: inOneLine(func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			if r.rate != 0 && !(r.rate >= 1 && r.rate <= mostRate) {
				return cli.Usagef("--rate is %g, and it is MiB a second, at least 1; 0: as fast as it goes", r.rate)
			}
			var err error
			if r.to, err = p.open(cmd.Context(), true); err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return r.run(cmd.Context(), c) })
		}),
	}
	p.flags(cmd)
	cmd.Flags().Float64Var(&r.rate, "rate", 0, "MiB a second that are read from the cluster at most; 0: as fast as it goes")
	cmd.Flags().BoolVar(&r.dry, "dry-run", false, "read all, say how much would be written, and write nothing")
	return cmd
}

func restoreCmd(a *app.App) *cobra.Command {
	var p place
	r := restoring{a: a}
	cmd := &cobra.Command{
		Use:   "restore DIR|s3://BUCKET/PREFIX",
		Short: "restore a backup into a new, empty cluster",
		Long: `restore writes all keys of a backup into a cluster that has none, of any number of nodes,
groups and shards, and then reads the backup again and compares it with the cluster. A key
that was to live until some time lives until then; one whose time is over is left
out. Nobody else may write to the cluster meanwhile.

If it was cut short, --continue takes the keys that are there for its own, and writes
all again.` + whence,
		Args: cobra.ExactArgs(1), SuggestFor: []string{"import", "load"},
		RunE: inOneLine(func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			if r.workers < 1 || r.workers > 64 {
				return cli.Usagef("--workers is %d, want 1 to 64", r.workers)
			}
			var err error
			if r.from, err = p.open(cmd.Context(), false); err != nil {
				return err
			}
			return r.dialed(cmd.Context())
		}),
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&r.id, "backup", "", "which backup (default: the newest)")
	cmd.Flags().IntVar(&r.workers, "workers", 4, "pieces that are restored side by side")
	cmd.Flags().BoolVar(&r.again, "continue", false, "a restore of this backup was cut short: the cluster may have keys")
	return cmd
}

func listCmd(a *app.App) *cobra.Command {
	var p place
	cmd := &cobra.Command{Use: "backups", Short: "look at the backups of a place"}
	list := &cobra.Command{
		Use:   "list DIR|s3://BUCKET/PREFIX",
		Short: "list the complete backups of a place",
		Long:  `list shows the backups of a place that are complete, oldest first.` + whence,
		Args:  cobra.ExactArgs(1),
		RunE: inOneLine(func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			from, err := p.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			return list(cmd.Context(), a, from)
		}),
	}
	p.flags(list)
	cmd.AddCommand(list)
	return cmd
}

func verifyCmd(a *app.App) *cobra.Command {
	var p place
	var id string
	cmd := &cobra.Command{
		Use:   "verify DIR|s3://BUCKET/PREFIX",
		Short: "read a backup and compare it with its checksums",
		Long:  `verify reads every piece of a backup and compares it with its SHA-256. No cluster is needed.` + whence,
		Args:  cobra.ExactArgs(1),
		RunE: inOneLine(func(cmd *cobra.Command, args []string) error {
			p.name = args[0]
			from, err := p.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			return verify(cmd.Context(), a, from, id)
		}),
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&id, "backup", "", "which backup (default: the newest)")
	return cmd
}

// each calls do for numbers below n, in order, at most so many at a time. After the first error no further one begins, and the contexts of those under way end.
func each(ctx context.Context, n, most int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(most, n) {
		wg.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	wg.Wait()
	return context.Cause(ctx)
}

// pause waits. false: the context has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A pace bounds bytes in a second, of several goroutines together. The zero pace bounds nothing.
type pace struct {
	rate float64 // bytes a second; 0: no bound
	mu   sync.Mutex
	free time.Time // when the next bytes may be read
}

// wait waits until so many bytes that were read are paid for. ctx's error.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate == 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	left := p.free.Sub(now)
	p.mu.Unlock()
	pause(ctx, left)
	return ctx.Err()
}

// errCluster: the cluster is none that could be backed up, or restored to.
var errCluster = errors.New("the cluster")

// Errors of S3 servers and of files that are not ours have any text, of several lines or with bytes that a terminal obeys.

// A lineError has the text of its cause in one line.
type lineError struct{ error }

// mostLine bounds a line, in bytes.
const mostLine = 1000

func (e lineError) Error() string {
	text := strings.Join(strings.Fields(e.error.Error()), " ")
	if len(text) > mostLine {
		text = text[:mostLine] + " ..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

func (e lineError) Unwrap() error { return e.error }

// oneLine makes one line of the text of an error that is somebody else's.
func oneLine(err error) error {
	if err == nil || cli.IsUsage(err) {
		return err
	}
	return lineError{err}
}

// inOneLine has a command fail with one line.
func inOneLine(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error { return oneLine(run(cmd, args)) }
}
