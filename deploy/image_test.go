package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestContainerfile: the image has the programs that the manifest starts, is built by
// this module's Go, and the manifest names it as make does.
func TestContainerfile(t *testing.T) {
	text, manifest := read(t, "Containerfile"), read(t, "kubernetes/rdmakv.yaml")
	for _, want := range []string{"./cmd/kvserver ./cmd/kvclient", "COPY --from=build /out/ /usr/bin/", "libibverbs1 librdmacm1"} {
		if !strings.Contains(text, want) {
			t.Errorf("Containerfile lacks %q", want)
		}
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	if !strings.Contains(text, "golang:"+goVersion+"-") {
		t.Errorf("the image is not built by Go %s", goVersion)
	}
	image := regexp.MustCompile(`image: (\S+)`).FindStringSubmatch(manifest)[1]
	if !strings.Contains(read(t, "../Makefile"), image) {
		t.Errorf("make image does not name %s", image)
	}
}

// TestImageScript: without a tool for it "make image" says which are wanted; with one
// it is called with the file and the name.
func TestImageScript(t *testing.T) {
	dir := t.TempDir()
	run := func(tool string) (string, error) {
		cmd := exec.Command("../scripts/image", "x:1")
		cmd.Env = append(os.Environ(), "IMAGE_TOOL="+tool)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run(filepath.Join(dir, "none")); err == nil || !strings.Contains(out, "no podman, docker or buildah is here") {
		t.Errorf("%v: %s", err, out)
	}
	tool := filepath.Join(dir, "podman")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho called \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := run(tool); err != nil || !strings.Contains(out, "called build -f deploy/Containerfile -t x:1 .") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPrometheusRule: the rule that is commented out in the NetworkPolicy is one,
// once its # are gone.
func TestPrometheusRule(t *testing.T) {
	manifest := read(t, "kubernetes/rdmakv.yaml")
	_, rule, ok := strings.Cut(manifest, "    #- from:\n")
	rule, _, _ = strings.Cut(rule, "---")
	if !ok {
		t.Fatal("there is no rule for Prometheus")
	}
	policy := "ingress:\n    - from:\n" + strings.ReplaceAll(rule, "    #", "    ")
	var got struct {
		Ingress []struct {
			From []struct {
				NamespaceSelector, PodSelector struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				}
			}
			Ports []struct{ Port int }
		}
	}
	if err := yaml.Unmarshal([]byte(policy), &got); err != nil || len(got.Ingress) != 1 || len(got.Ingress[0].Ports) != 1 || got.Ingress[0].Ports[0].Port != 7401 {
		t.Errorf("%+v, %v in\n%s", got, err, policy)
	}
}
