package lab

import (
	"context"
	"path"
	"slices"
)

// Staged is the directory of a guest's memory to which Stage copies.
const Staged = "/run/lab"

// staging copies the files named behind it from /mnt. Blocks are large because
// each is a round trip to the host.
const staging = `mkdir -p "$0" && for f; do
	rm -f "$0/${f##*/}" && dd if="/mnt/$f" of="$0/${f##*/}" bs=1M status=none && chmod 755 "$0/${f##*/}" || exit 1
done`

// Stage copies programs, named by their paths below the shared directory, into
// Staged, where they lie in memory until Unstage. Started from /mnt a program is
// several times as slow, each time again: the guest fetches every page that it
// touches from the host, one by one, and QEMU translates its code anew, because
// that lies at another place of the guest's memory.
func (g *Guest) Stage(ctx context.Context, files ...string) error {
	_, err := g.Output(ctx, slices.Concat([]string{"sh", "-c", staging, Staged}, files)...)
	return err
}

// Unstage gives the memory of programs back, which are named as for Stage.
func (g *Guest) Unstage(ctx context.Context, files ...string) error {
	args := []string{"rm", "-f"}
	for _, f := range files {
		args = append(args, path.Join(Staged, path.Base(f)))
	}
	_, err := g.Output(ctx, args...)
	return err
}
