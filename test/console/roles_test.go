package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/test/harness"
)

// addUser adds a user, and returns its token.
func addUser(t *testing.T, s *harness.Server, user string) (token string) {
	t.Helper()
	kubeconfig, err := clientcmd.Load([]byte(must(t, s, "exeunt", "user", "add", user)))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range kubeconfig.AuthInfos {
		token = u.Token
	}
	return token
}

// signInAs opens the page with a token.
func (p *tab) signInAs(token string) {
	p.t.Helper()
	page, _, _ := strings.Cut(p.link(), "#")
	p.run(navigate(page))
	p.write("#token", token)
	p.press("Sign in")
	p.see("Sign out")
}

// TestRoles: an editor and a viewer of one namespace go through the pages, at every width, light and dark. Each sees what it may
// do and nothing else. The browser reports no error: the page asks for nothing that is refused. Axe finds nothing.
func TestRoles(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	in := func(args ...string) string { t.Helper(); return must(t, s, append(args, "-n", "shop")...) }
	must(t, s, "create", "namespace", "shop")
	must(t, s, "annotate", "namespace", "shop", "lifecycle.exeunt.dev/max-cascade=5")
	uid := map[string]string{}
	for _, name := range []string{"prices", "held", "gone"} {
		in("create", "configmap", name, "--from-literal=k=v")
		uid[name] = in("get", "configmap", name, "-o", "jsonpath={.metadata.uid}")
	}
	in("patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	in("delete", "configmap", "held", "gone", "--wait=false")
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(s.Registry()+"/shop/web:v1", name.Insecure)
	if err == nil {
		err = remote.Write(ref, image, remote.WithAuth(&authn.Basic{Username: harness.RegistryUser, Password: s.RegistryToken()}))
	}
	if err != nil {
		t.Fatal(err)
	}
	visits := []struct {
		hash, shows string
		edit        []string // what an editor is offered there, and a viewer is not
	}{
		{"#/now", "1 cascade under way", nil},
		{"#/objects", "ConfigMap", nil},
		{"#/objects/core/configmaps", "prices", []string{`input[aria-label="Choose prices"]`}},
		{"#/object/core/configmaps/shop/prices", "Ownership", []string{".button.danger"}},
		{"#/object/core/namespaces/-/shop", "more than 5 objects waits until it is confirmed", nil},
		{"#/deletion/shop/" + uid["prices"] + "/plan", "A plan: nothing of it has been deleted", []string{"#delete-now"}},
		{"#/deletion/shop/" + uid["held"], "example.com/hold", nil},
		{"#/deletion/shop/" + uid["gone"], "All of it is gone.", []string{"#restore-now"}},
		{"#/why/" + uid["held"], "example.com/hold", nil},
		{"#/archive", "ConfigMap gone", nil},
		{"#/registry", "shop/web", nil},
		{"#/registry/shop/web?tag=v1", "docker pull", []string{`input[aria-label="Choose v1"]`}},
		{"#/access", "You are", nil},
	}
	for n, role := range []string{"view", "edit"} {
		in("create", "rolebinding", role, "--clusterrole="+role, "--user="+role+"er")
		p := openTabAs(t, s, role)
		p.write("input.namespace", "shop\r")
		for i, look := range looks() {
			if testing.Short() && i != n+1 || !testing.Short() && look.keyboard { // the pages are only opened
				continue
			}
			p.size(look.width, 900)
			p.dark(look.dark)
			for _, visit := range visits {
				at := fmt.Sprintf("%s of %s, %d wide", visit.hash, role, look.width)
				p.open(visit.hash)
				p.see(visit.shows)
				for _, selector := range visit.edit {
					condition := fmt.Sprintf("document.querySelector(%q)", selector)
					if role == "view" {
						condition = "!" + condition
					}
					p.until(at+": "+selector, condition)
				}
				p.until(at+": what neither may do", `![...document.querySelectorAll("main button")].some(e => /^(Pause…|Set the guard|Remove this finalizer…|Undelete)/.test(e.innerText))`)
				p.until(at+": no sideways scrolling", `document.documentElement.scrollWidth <= innerWidth`)
				p.accessible(at)
			}
			p.shoot(fmt.Sprintf("%s-%d-%v", role, look.width, look.dark))
		}
	}
}
