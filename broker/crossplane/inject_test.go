package crossplane_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/broker"
)

// delivered returns the content of the Secret that a strategy makes.
func delivered(t *testing.T, strategy broker.InjectionStrategy) map[string]string {
	t.Helper()
	c, r := newCluster(t), resource(t)
	v := version(r)
	v.Injection = strategy
	if err := c.DeliverToken(t.Context(), r, v, broker.BootstrapToken{ID: "t1", Secret: broker.NewTokenSecret("exb_a_B")}); err != nil {
		t.Fatal(err)
	}
	_, _, secret := paths(r)
	out := map[string]string{}
	for key, value := range c.objects[secret]["data"].(map[string]any) {
		text, err := base64.StdEncoding.DecodeString(value.(string))
		if err != nil {
			t.Fatal(err)
		}
		out[key] = string(text)
	}
	return out
}

func TestInjection(t *testing.T) {
	for _, strategy := range broker.InjectionStrategies() {
		got := delivered(t, strategy)
		if got["token"] != "exb_a_B" || got["server"] != "https://exeunt.example" || got["project"] != "shop" || got["ca.crt"] != "pem" {
			t.Errorf("%s: the plain parts are %q", strategy, got)
		}
		if (got["userData"] != "") != (strategy == broker.InjectCloudInitUserData) || (got["values.yaml"] != "") != (strategy == broker.InjectHelmValues) {
			t.Errorf("%s: the parts are %q", strategy, got)
		}
	}
}

func TestCloudInit(t *testing.T) {
	text := delivered(t, broker.InjectCloudInitUserData)["userData"]
	if !strings.HasPrefix(text, "#cloud-config\n") {
		t.Errorf("cloud-init cannot read\n%s", text)
	}
	var doc struct {
		WriteFiles []struct{ Path, Permissions, Encoding, Content string } `json:"write_files"`
		RunCmd     [][]string                                              `json:"runcmd"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	file := doc.WriteFiles[0]
	content, err := base64.StdEncoding.DecodeString(file.Content)
	if err != nil || string(content) != "exb_a_B" || file.Permissions != "0600" || file.Path != "/etc/exeunt/bootstrap-token" {
		t.Errorf("the token's file is %+v, %v", file, err)
	}
	want := "exeunt node join --server https://exeunt.example --token-file /etc/exeunt/bootstrap-token --name " + resource(t).XRName() + " --ca-file /etc/exeunt/ca.crt"
	if got := strings.Join(doc.RunCmd[0], " "); got != want {
		t.Errorf("the command is %q, want %q", got, want)
	}
}

func TestHelmValues(t *testing.T) {
	var values struct {
		Exeunt struct{ Server, Project, Name, Token, CA string } `json:"exeunt"`
	}
	if err := yaml.UnmarshalStrict([]byte(delivered(t, broker.InjectHelmValues)["values.yaml"]), &values); err != nil {
		t.Fatal(err)
	}
	if got := values.Exeunt; got.Token != "exb_a_B" || got.Server != "https://exeunt.example" || got.Project != "shop" || got.CA != "pem" {
		t.Errorf("values %+v", got)
	}
}
