package oci

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/test/harness"
)

// TestRights: a client that logs in with a token has in the registry the rights of its
// roles on repositories.
func TestRights(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		run := func(r harness.Result) string {
			t.Helper()
			if r.Code != 0 {
				t.Fatalf("%s%s", r.Stdout, r.Stderr)
			}
			return r.Stdout
		}
		image, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/shop/web:v1", "/other/web:v1"} {
			ref, err := name.ParseReference(s.Registry()+path, name.Insecure)
			if err == nil {
				err = remote.Write(ref, image, loggedIn())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		kubeconfig, err := clientcmd.Load([]byte(run(s.Exeunt(t, "user", "add", "jane"))))
		if err != nil {
			t.Fatal(err)
		}
		token := ""
		for _, u := range kubeconfig.AuthInfos {
			token = u.Token
		}
		ask := func(password, method, path string) (int, http.Header) {
			t.Helper()
			req, err := http.NewRequest(method, "http://"+s.Registry()+path, strings.NewReader(""))
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth("jane", password)
			answer, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			return answer.StatusCode, answer.Header
		}
		want := func(code int, password, method, path string) {
			t.Helper()
			harness.Until(t, method+" "+path, func() error { // changes of roles and users apply within a second
				if got, _ := ask(password, method, path); got != code {
					return &wrongCode{got, code}
				}
				return nil
			})
		}
		want(403, token, "GET", "/v2/shop/web/manifests/v1") // no role yet
		run(s.Kubectl(t, "create", "rolebinding", "jane", "--clusterrole=view", "--user=jane", "-n", "shop"))
		want(200, token, "GET", "/v2/shop/web/manifests/v1")
		want(200, token, "GET", "/v2/shop/web/tags/list")
		want(403, token, "GET", "/v2/other/web/manifests/v1")
		want(200, token, "GET", "/v2/_catalog") // of what she may pull
		want(403, token, "POST", "/v2/shop/web/blobs/uploads/")
		want(403, token, "PUT", "/v2/shop/web/manifests/v2")
		want(403, token, "DELETE", "/v2/shop/web/manifests/v1")
		run(s.Kubectl(t, "create", "rolebinding", "jane-edits", "--clusterrole=edit", "--user=jane", "-n", "shop"))
		want(202, token, "POST", "/v2/shop/web/blobs/uploads/")
		want(202, token, "POST", "/v2/shop/new/blobs/uploads/") // a repository that does not exist yet
		want(403, token, "POST", "/v2/other/web/blobs/uploads/")

		code, header := ask("wrong", "GET", "/v2/")
		if code != 401 || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Bearer realm=") {
			t.Errorf("a wrong password: %d %v", code, header)
		}
		run(s.Exeunt(t, "user", "remove", "jane"))
		want(401, token, "GET", "/v2/shop/web/manifests/v1")
	})
}

// wrongCode is the error for an unexpected status.
type wrongCode struct{ got, want int }

func (e *wrongCode) Error() string {
	return "answered " + http.StatusText(e.got) + ", want " + http.StatusText(e.want)
}
