package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rdmakv/rdmakv/lab/deb"
	"github.com/rdmakv/rdmakv/lab/image"
)

//go:embed init.sh
var initScript []byte

// Unavailable says whether an error means that the lab is unavailable on this
// machine, because packages are missing, and not that something is broken.
func Unavailable(err error) bool {
	return errors.Is(err, image.ErrMissing) || errors.Is(err, deb.ErrNoDebian)
}

// Image makes what a guest of this configuration boots from, or finds it where
// it was made before.
func Image(ctx context.Context, c Config) (image.Image, error) {
	c, err := c.filled()
	if err != nil {
		return image.Image{}, err
	}
	return c.image(ctx)
}

func (c Config) image(ctx context.Context) (image.Image, error) {
	root, err := Root()
	if err != nil {
		return image.Image{}, err
	}
	if err := os.MkdirAll(c.Cache, 0o755); err != nil {
		return image.Image{}, err
	}
	unlock, err := lockDir(ctx, c.Cache)
	if err != nil {
		return image.Image{}, err
	}
	defer unlock()
	agentFile := filepath.Join(c.Cache, "agent")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", agentFile, "./lab/cmd/agent")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	if out, err := build.CombinedOutput(); ctx.Err() != nil {
		return image.Image{}, ctx.Err()
	} else if err != nil {
		return image.Image{}, fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	modules := c.Modules
	if c.RDMA == RXE {
		modules = append([]string{"rdma_rxe"}, modules...)
	}
	return image.Build(ctx, image.Config{
		Cache: c.Cache, Init: initScript, Agent: agentFile, Modules: modules, Extra: c.Extra, Files: c.Files,
	})
}
