package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rdmakv/rdmakv/internal/config"
)

// What the manifest may say of a StatefulSet, with the names of the Kubernetes
// API: a key that is misspelt is not among them.
type (
	object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   meta
		Data       map[string]string
		Spec       yaml.Node
	}
	meta struct {
		Name, Namespace     string
		Labels, Annotations map[string]string
	}
	selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	statefulSet struct {
		ServiceName         string `yaml:"serviceName"`
		Replicas            int
		PodManagementPolicy string                `yaml:"podManagementPolicy"`
		UpdateStrategy      struct{ Type string } `yaml:"updateStrategy"`
		Selector            selector
		Template            struct {
			Metadata meta
			Spec     podSpec
		}
		VolumeClaimTemplates []struct {
			Metadata meta
			Spec     struct {
				AccessModes []string `yaml:"accessModes"`
				Resources   resources
			}
		} `yaml:"volumeClaimTemplates"`
	}
	podSpec struct {
		Grace           int `yaml:"terminationGracePeriodSeconds"`
		SecurityContext struct {
			RunAsUser      *int                  `yaml:"runAsUser"`
			RunAsGroup     *int                  `yaml:"runAsGroup"`
			SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
		} `yaml:"securityContext"`
		Affinity struct {
			PodAntiAffinity struct {
				Required []struct {
					TopologyKey   string   `yaml:"topologyKey"`
					LabelSelector selector `yaml:"labelSelector"`
				} `yaml:"requiredDuringSchedulingIgnoredDuringExecution"`
			} `yaml:"podAntiAffinity"`
		}
		TopologySpreadConstraints []struct {
			TopologyKey       string   `yaml:"topologyKey"`
			MaxSkew           int      `yaml:"maxSkew"`
			WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
			LabelSelector     selector `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		RestartPolicy string `yaml:"restartPolicy"`
		Containers    []container
		Volumes       []struct {
			Name      string
			ConfigMap struct{ Name string } `yaml:"configMap"`
			Secret    struct {
				SecretName  string `yaml:"secretName"`
				DefaultMode int    `yaml:"defaultMode"`
			}
		}
	}
	container struct {
		Name, Image string
		Command     []string
		Env         []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef struct {
					FieldPath string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
				SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
			} `yaml:"valueFrom"`
		}
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
			Protocol      string
		}
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Privileged               bool
			Capabilities             struct{ Drop, Add []string }
		} `yaml:"securityContext"`
		Resources      resources
		StartupProbe   probe `yaml:"startupProbe"`
		LivenessProbe  probe `yaml:"livenessProbe"`
		ReadinessProbe probe `yaml:"readinessProbe"`
		VolumeMounts   []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			ReadOnly  bool   `yaml:"readOnly"`
		} `yaml:"volumeMounts"`
	}
	resources struct{ Requests, Limits map[string]string }
	probe     struct {
		HTTPGet struct {
			Path, Port string
		} `yaml:"httpGet"`
		PeriodSeconds    int `yaml:"periodSeconds"`
		TimeoutSeconds   int `yaml:"timeoutSeconds"`
		FailureThreshold int `yaml:"failureThreshold"`
	}
)

// objects reads a manifest; yaml refuses keys that stand twice.
func objects(t *testing.T, file string) map[string]object {
	t.Helper()
	out := map[string]object{}
	dec := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes/"+file)))
	for {
		var raw yaml.Node
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := raw.Decode(&o); err != nil {
			t.Fatal(err)
		}
		if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" || o.Metadata.Namespace != "rdmakv" {
			t.Errorf("%+v", o.Metadata)
		}
		out[o.Kind] = o
	}
}

// strictly decodes a spec, refusing keys that it does not know.
func strictly(t *testing.T, n *yaml.Node, to any) {
	t.Helper()
	text, err := yaml.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(to); err != nil {
		t.Fatal(err)
	}
}

func setOf(t *testing.T, all map[string]object) (set statefulSet) {
	t.Helper()
	o := all["StatefulSet"]
	strictly(t, &o.Spec, &set)
	return set
}

// TestManifest: the StatefulSet runs the program as it is, with what it needs
// and nothing that it does not.
func TestManifest(t *testing.T) {
	all := objects(t, "rdmakv.yaml")
	set := setOf(t, all)
	o := all["StatefulSet"]
	pod := set.Template.Spec
	if len(pod.Containers) != 1 || set.ServiceName != all["Service"].Metadata.Name || set.Replicas != 3 || set.PodManagementPolicy != "Parallel" {
		t.Fatalf("%+v", set)
	}
	c := pod.Containers[0]
	sec := c.SecurityContext
	if sec.Privileged || sec.AllowPrivilegeEscalation == nil || *sec.AllowPrivilegeEscalation || !slices.Equal(sec.Capabilities.Drop, []string{"ALL"}) || !slices.Equal(sec.Capabilities.Add, []string{"IPC_LOCK"}) {
		t.Errorf("%+v", sec)
	}
	if !slices.ContainsFunc(keys(c.Resources.Limits), func(k string) bool { return strings.HasPrefix(k, "rdma/") }) {
		t.Errorf("no resource of a device plugin: %v", c.Resources.Limits)
	}
	if a := pod.Affinity.PodAntiAffinity.Required; len(a) != 1 || a[0].TopologyKey != "kubernetes.io/hostname" || a[0].LabelSelector.MatchLabels["app"] != set.Template.Metadata.Labels["app"] || a[0].LabelSelector.MatchLabels["app"] == "" {
		t.Errorf("%+v", a)
	}
	for _, s := range pod.TopologySpreadConstraints {
		if s.TopologyKey != "topology.kubernetes.io/zone" || s.MaxSkew != 1 || s.WhenUnsatisfiable != "ScheduleAnyway" || s.LabelSelector.MatchLabels["app"] != set.Template.Metadata.Labels["app"] {
			t.Errorf("%+v", s)
		}
	}
	if limit := endWithin(t); time.Duration(pod.Grace)*time.Second <= limit {
		t.Errorf("%d s for a clean end, which takes up to %v", pod.Grace, limit)
	}
	// The probe that a rolling update waits for is the one that knows of replicas. The others must not be: a node that waits for the
	// others is no node to be started again.
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.StartupProbe.HTTPGet.Path != "/healthz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || set.UpdateStrategy.Type != "RollingUpdate" {
		t.Errorf("%+v, %+v, %+v, %+v", c.ReadinessProbe, c.StartupProbe, c.LivenessProbe, set.UpdateStrategy)
	}
	var budget struct {
		MaxUnavailable int `yaml:"maxUnavailable"`
		Selector       selector
	}
	o = all["PodDisruptionBudget"]
	strictly(t, &o.Spec, &budget)
	if budget.MaxUnavailable != 1 || budget.Selector.MatchLabels["app"] != set.Template.Metadata.Labels["app"] {
		t.Errorf("%+v", budget)
	}
	served := read(t, "../internal/server/admin.go")
	for _, p := range []probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if p.HTTPGet.Port != "admin" || !strings.Contains(served, `"GET `+p.HTTPGet.Path+`"`) {
			t.Errorf("%+v: the admin port has no such page", p)
		}
	}
	var service struct {
		ClusterIP string `yaml:"clusterIP"`
		Publish   bool   `yaml:"publishNotReadyAddresses"`
		Selector  map[string]string
		Ports     []struct {
			Name     string
			Port     int
			Protocol string
		}
	}
	o = all["Service"]
	strictly(t, &o.Spec, &service)
	if service.ClusterIP != "None" || !service.Publish || service.Selector["app"] != set.Selector.MatchLabels["app"] || len(service.Ports) != len(c.Ports) {
		t.Errorf("%+v", service)
	}
	for i, p := range service.Ports {
		if q := c.Ports[i]; p.Name != q.Name || p.Port != q.ContainerPort || p.Protocol != q.Protocol {
			t.Errorf("%+v and %+v", p, q)
		}
	}
	manifestConfig(t, all["ConfigMap"], &set)
}

// manifestConfig loads the configuration as the container would.
func manifestConfig(t *testing.T, m object, set *statefulSet) {
	c := set.Template.Spec.Containers[0]
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(m.Data["config.yaml"]), 0o644); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Command, []string{"kvserver", "--config", "/etc/rdmakv/config.yaml"}) {
		t.Errorf("command: %v", c.Command)
	}
	fields := map[string]string{"status.podIP": "10.1.2.3", "metadata.name": "rdmakv-0"}
	values, env := map[string]string{}, []string{}
	for _, e := range c.Env {
		v := e.Value
		if path := e.ValueFrom.FieldRef.FieldPath; path != "" {
			if v = fields[path]; v == "" {
				t.Errorf("%s: %s", e.Name, path)
			}
		}
		v = regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(v, func(ref string) string { return values[ref[2:len(ref)-1]] })
		values[e.Name] = v
		env = append(env, e.Name+"="+v)
	}
	l, err := config.Load(config.Options{Scope: config.ForServer, File: file, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	// "kubectl exec … kvclient" finds the same file, and the secret by it.
	if c, err := config.Load(config.Options{Scope: config.ForClient, File: file, Env: env}); err != nil || c.SecretFile != l.SecretFile {
		t.Errorf("kvclient in the pod: %v", err)
	}
	fitForReplicas(t, l)
	if l.NodeID != "rdmakv-0" || l.Gossip.Advertise != "10.1.2.3:7946" || !slices.Equal(l.Advertise, []string{"10.1.2.3"}) || l.Insecure || len(l.Gossip.Join) != set.Replicas {
		t.Errorf("%+v", l.Config)
	}
	// What the file names is mounted, the keys so that others cannot read them.
	mounts, names := []string{}, map[string]string{}
	for _, v := range c.VolumeMounts {
		mounts = append(mounts, v.MountPath+"/")
		names[v.MountPath] = v.Name
	}
	for _, path := range []string{l.DataDir + "/", l.SecretFile, l.Gossip.KeyFile, "/etc/rdmakv/config.yaml"} {
		if !slices.ContainsFunc(mounts, func(m string) bool { return strings.HasPrefix(path, m) }) {
			t.Errorf("%s is not mounted: %v", path, mounts)
		}
	}
	for _, v := range set.Template.Spec.Volumes {
		if v.Secret.SecretName != "" && (v.Secret.DefaultMode != 0o400 || v.Name != names[filepath.Dir(l.SecretFile)]) {
			t.Errorf("%+v", v)
		}
	}
	memory := l.MemoryLimit + 1<<30
	if c.Resources.Limits["memory"] != "6Gi" || memory > 6<<30 {
		t.Errorf("memory_limit %v in a container of %s", l.MemoryLimit, c.Resources.Limits["memory"])
	}
}

// TestInitJob: the Job makes a cluster with replicas of the pods that there are, as a client that is let in.
func TestInitJob(t *testing.T) {
	all := objects(t, "rdmakv.yaml")
	set := setOf(t, all)
	jobs := objects(t, "init.yaml")
	var job struct {
		BackoffLimit int `yaml:"backoffLimit"`
		Deadline     int `yaml:"activeDeadlineSeconds"`
		Template     struct {
			Metadata meta
			Spec     podSpec
		}
	}
	o := jobs["Job"]
	strictly(t, &o.Spec, &job)
	pod := job.Template.Spec
	if len(jobs) != 1 || len(pod.Containers) != 1 || pod.RestartPolicy != "OnFailure" || *pod.SecurityContext.RunAsUser == 0 || job.BackoffLimit < 1 || job.Deadline < 600 {
		t.Fatalf("%+v", job)
	}
	c, node := pod.Containers[0], set.Template.Spec.Containers[0]
	if sec := c.SecurityContext; c.Image != node.Image || sec.Privileged || *sec.AllowPrivilegeEscalation || !slices.Equal(sec.Capabilities.Drop, []string{"ALL"}) || len(sec.Capabilities.Add) > 0 {
		t.Errorf("%+v", c)
	}
	name := all["StatefulSet"].Metadata.Name
	want := []string{"kvclient", "--server", "", "cluster", "init", "--wait", "5m", "--replicas", strconv.Itoa(set.Replicas)}
	for i := range set.Replicas {
		want = append(want, name+"-"+strconv.Itoa(i))
	}
	want[2] = strings.Join([]string{name + "-0", set.ServiceName, all["Service"].Metadata.Namespace, "svc.cluster.local:7400"}, ".")
	if !slices.Equal(c.Command, want) {
		t.Errorf("%q, want %q", c.Command, want)
	}
	if len(c.Env) != 1 || c.Env[0].Name != config.EnvSecret || c.Env[0].ValueFrom.SecretKeyRef.Name != set.Template.Spec.Volumes[1].Secret.SecretName || c.Env[0].ValueFrom.SecretKeyRef.Key != "secret" {
		t.Errorf("%+v", c.Env)
	}
	if job.Template.Metadata.Labels["rdmakv-client"] != "true" || !strings.Contains(read(t, "kubernetes/rdmakv.yaml"), `rdmakv-client: "true"`) || job.Template.Metadata.Labels["app"] == set.Template.Metadata.Labels["app"] {
		t.Errorf("labels %v", job.Template.Metadata.Labels)
	}
}

func keys(m map[string]string) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}
