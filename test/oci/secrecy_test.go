package oci

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/test/harness"
)

// The names of a repository that the clients of these tests may not read, and of some
// that do not exist. They have the same length, so that answers can be compared.
var unreadable = []string{"hidden/web", "hidden/wob", "nought/web"}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// imageOf returns a manifest with one layer, its config.
func imageOf(layer, more string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":%d},"layers":[]%s}`,
		manifestType, digest.FromString(layer), len(layer), more)
}

// query is a request to the registry. Its answer must not depend on which of unreadable REPO
// is, or whether what it names exists.
type query struct {
	method, path string
	header       http.Header
	body         string
}

// ask sends a request, and returns all of the answer that could tell something: status,
// headers and body. Ids of uploads and times are left out.
func (f accessFlow) ask(authorization string, q query, repository string) string {
	f.Helper()
	req, err := http.NewRequest(q.method, "http://"+f.s.Registry()+strings.ReplaceAll(q.path, "REPO", repository), strings.NewReader(q.body))
	if err != nil {
		f.Fatal(err)
	}
	for name, values := range q.header {
		req.Header[name] = values
	}
	if q.body != "" && q.header == nil {
		req.Header.Set("Content-Type", manifestType)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	answer, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	answer.Header.Del("Date")
	var text strings.Builder
	fmt.Fprintln(&text, answer.Status)
	if err := answer.Header.Write(&text); err != nil {
		f.Fatal(err)
	}
	text.Write(body)
	namespace, name, _ := strings.Cut(repository, "/")
	all := strings.NewReplacer(repository, "REPO", url.QueryEscape(repository), "REPO", namespace, "NAMESPACE", `\"`+name+`\"`, "NAME").Replace(text.String())
	return uploadID.ReplaceAllString(all, "ID")
}

var uploadID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func basic(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+token))
}

// bearer gets a token of the registry for a scope.
func (f accessFlow) bearer(user, scope string) string {
	f.Helper()
	req, err := http.NewRequest("GET", "http://"+f.s.Registry()+"/token?service=exeunt-registry&scope="+url.QueryEscape(scope), nil)
	if err != nil {
		f.Fatal(err)
	}
	req.Header.Set("Authorization", basic(f.tokens[user]))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	var body struct{ Token string }
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil || body.Token == "" {
		f.Fatalf("a token for %s: %s %v", scope, answer.Status, err)
	}
	return "Bearer " + body.Token
}

// grants returns the access that a token of the registry carries.
func (f accessFlow) grants(user, scope string) string {
	f.Helper()
	parts := strings.Split(f.bearer(user, scope), ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		f.Fatal(err)
	}
	var claims struct{ Access []any }
	if err := json.Unmarshal(payload, &claims); err != nil {
		f.Fatal(err)
	}
	return fmt.Sprint(claims.Access)
}

// local adds a user with verbs on the repositories of one namespace.
func (f accessFlow) local(name, namespace, verbs string) {
	f.Helper()
	f.user(name, "watch")
	f.kubectl("delete", "clusterrolebinding", name)
	f.kubectl("create", "role", name, "--verb="+verbs, "--resource=repositories.registry.exeunt.dev", "-n", namespace)
	f.kubectl("create", "rolebinding", name, "--role="+name, "--user="+name, "-n", namespace)
}

// TestForbiddenIsMissing: a client that may not read a repository gets the same answers,
// to the byte, whether the repository, and what it asks for in it, exists or not: directly, by
// a mount, with a token for another repository, with the id of another client's upload.
func TestForbiddenIsMissing(t *testing.T) {
	eachAccessFlow(t, func(f accessFlow) {
		f.tokens[harness.RegistryUser] = f.s.RegistryToken()
		admin := f.s.RegistryAuthorization()
		layer, secret := digest.FromString("{}").String(), imageOf("{}", "")
		d := digest.FromString(secret).String()
		signature := imageOf("{}", `,"subject":{"mediaType":"`+manifestType+`","digest":"`+d+`","size":`+fmt.Sprint(len(secret))+`}`)
		f.kubectl("create", "namespace", "shop")
		for _, repository := range []string{"hidden/web", "shop/web"} {
			for _, q := range []query{
				{"POST", "/v2/REPO/blobs/uploads/?digest=" + layer, http.Header{"Content-Type": {"application/octet-stream"}}, "{}"},
				{"PUT", "/v2/REPO/manifests/v1", nil, secret}, {"PUT", "/v2/REPO/manifests/" + digest.FromString(signature).String(), nil, signature},
			} {
				if got := f.ask(admin, q, repository); !strings.HasPrefix(got, "201") {
					f.Fatalf("%s %s: %s", q.method, q.path, got)
				}
			}
		}
		// An upload of the administrator, with bytes.
		_, _, header := f.send(harness.RegistryUser, "POST", "hidden/web/blobs/uploads/", "")
		upload := uploadID.FindString(header.Get("Location"))
		if got := f.ask(admin, query{"PATCH", "/v2/hidden/web/blobs/uploads/" + upload, http.Header{"Content-Type": {"application/octet-stream"}}, "part"}, "x/y"); !strings.HasPrefix(got, "202") {
			f.Fatal(got)
		}
		f.local("nobody", "shop", "watch")
		f.local("reader", "shop", "get,list")
		f.local("pusher", "shop", "create")
		f.local("editor", "shop", "get,list,create,update,delete")
		f.wants(202, "", "editor", "POST", "shop/web/blobs/uploads/", "")

		missing := digest.FromString("nowhere").String()
		made := "5a1f0b0e-0000-4000-8000-000000000000"
		var queries []query
		for _, target := range []string{"manifests/v1", "manifests/none", "manifests/" + d, "manifests/" + missing, "blobs/" + layer, "blobs/" + missing} {
			for _, method := range []string{"GET", "HEAD", "DELETE"} {
				queries = append(queries, query{method, "/v2/REPO/" + target, nil, ""},
					query{method, "/v2/REPO/" + target, http.Header{"Range": {"bytes=0-0"}, "If-None-Match": {`"` + d + `"`}, "Accept": {indexType}}, ""})
			}
		}
		for _, id := range []string{upload, made} {
			for _, method := range []string{"GET", "PATCH", "PUT", "DELETE"} {
				queries = append(queries, query{method, "/v2/REPO/blobs/uploads/" + id + "?digest=" + layer, http.Header{"Content-Type": {"application/octet-stream"}}, "{}"})
			}
		}
		for _, path := range []string{
			"tags/list", "tags/list?n=1", "tags/list?last=v0", "referrers/" + d, "referrers/" + missing, "referrers/" + d + "?artifactType=x/y",
		} {
			queries = append(queries, query{"GET", "/v2/REPO/" + path, nil, ""})
		}
		for _, path := range []string{"", "?digest=" + layer, "?mount=" + layer, "?mount=" + layer + "&from=shop/web", "?mount=" + missing} {
			queries = append(queries, query{"POST", "/v2/REPO/blobs/uploads/" + path, http.Header{"Content-Type": {"application/octet-stream"}}, "{}"})
		}
		queries = append(queries, query{"PUT", "/v2/REPO/manifests/v1", nil, secret}, query{"PUT", "/v2/REPO/manifests/v9", nil, imageOf("none", "")})
		// Into a repository of the client: mounts, and manifests that refer to what is hidden.
		for _, what := range []string{layer, missing} {
			queries = append(queries, query{"POST", "/v2/shop/own/blobs/uploads/?mount=" + what + "&from=REPO", nil, ""})
		}
		queries = append(queries, query{"GET", "/v2/_catalog", nil, ""}, query{"GET", "/v2/_catalog?n=1&last=REPO", nil, ""})

		clients := map[string]string{"anonymous": "", "a wrong password": basic("wrong")}
		for _, name := range []string{"nobody", "reader", "pusher", "editor"} {
			clients[name] = basic(f.tokens[name])
			clients[name+"'s token for shop/web"] = f.bearer(name, "repository:shop/web:pull,push,delete")
			clients[name+"'s token for hidden/web"] = f.bearer(name, "repository:hidden/web:pull,push,delete")
		}
		for name, authorization := range clients {
			asked := queries
			if name == "a wrong password" {
				asked = queries[:10] // more would be throttled
			}
			for _, q := range asked {
				want := f.ask(authorization, q, unreadable[0])
				for _, repository := range unreadable[1:] {
					if got := f.ask(authorization, q, repository); got != want {
						f.Errorf("%s: %s %s\nof a hidden repository: %s\nof a missing one: %s", name, q.method, q.path, want, got)
					}
				}
				if strings.Contains(want, d) && !strings.Contains(q.path, d) {
					f.Errorf("%s: %s %s tells a digest: %s", name, q.method, q.path, want)
				}
			}
		}
		// A digest that exists elsewhere, and one that does not, of one repository.
		for name, pair := range map[string][2]query{
			"mount":    {{"POST", "/v2/shop/own/blobs/uploads/?mount=" + layer + "&from=hidden/web", nil, ""}, {"POST", "/v2/shop/own/blobs/uploads/?mount=" + missing + "&from=hidden/web", nil, ""}},
			"manifest": {{"GET", "/v2/hidden/web/manifests/v1", nil, ""}, {"GET", "/v2/hidden/web/manifests/v9", nil, ""}},
			"upload":   {{"PUT", "/v2/shop/web/blobs/uploads/" + upload + "?digest=" + layer, nil, "{}"}, {"PUT", "/v2/shop/web/blobs/uploads/" + made + "?digest=" + layer, nil, "{}"}},
		} {
			for client, authorization := range clients {
				one, other := f.ask(authorization, pair[0], "x/y"), f.ask(authorization, pair[1], "x/y")
				same := strings.NewReplacer(layer, "DIGEST", missing, "DIGEST", "/v1", "/v", "/v9", "/v")
				if same.Replace(one) != same.Replace(other) {
					f.Errorf("%s, %s: what exists: %s\nwhat does not: %s", name, client, one, other)
				}
			}
		}
		for _, name := range []string{"nobody", "reader", "pusher", "editor"} {
			first := f.grants(name, "repository:"+unreadable[0]+":pull,push,delete")
			for _, repository := range unreadable[1:] {
				if got := f.grants(name, "repository:"+repository+":pull,push,delete"); strings.ReplaceAll(got, repository, "") != strings.ReplaceAll(first, unreadable[0], "") {
					f.Errorf("%s may %s, and %s", name, first, got)
				}
			}
		}
		// The administrator's upload is untouched.
		if got := f.ask(admin, query{"GET", "/v2/hidden/web/blobs/uploads/" + upload, nil, ""}, "x/y"); !strings.HasPrefix(got, "204") || !strings.Contains(got, "Range: 0-3") {
			f.Errorf("the upload: %s", got)
		}
		if got := f.ask(admin, query{"GET", "/v2/hidden/web/tags/list", nil, ""}, "x/y"); !strings.Contains(got, `"tags":["v1"]`) {
			f.Errorf("the tags: %s", got)
		}
		if got := f.kubectl("get", "repositories", "-A", "-o", "jsonpath={.items[*].spec.path}"); slices.ContainsFunc(strings.Fields(got), func(path string) bool { return slices.Contains(unreadable[1:], path) }) {
			f.Errorf("there are repositories %s", got)
		}
	})
}
