package registry_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// next returns the URL in the Link of an answer.
func (a answer) next() string {
	at, ok := strings.CutSuffix(a.header.Get("Link"), `>; rel="next"`)
	if !ok {
		return ""
	}
	return strings.TrimPrefix(at, "<")
}

// names reads a list with all its pages.
func (w *world) names(path, field string) (names []string, pages int) {
	w.Helper()
	for path != "" {
		a := w.want(200, "GET", path, nil, nil)
		var body map[string]any
		if err := json.Unmarshal([]byte(a.body), &body); err != nil {
			w.Fatalf("%s: %v: %s", path, err, a.body)
		}
		list, ok := body[field].([]any)
		if !ok || a.header.Get("Content-Type") != "application/json" {
			w.Fatalf("%s: %s, %v", path, a.body, a.header)
		}
		for _, name := range list {
			names = append(names, name.(string))
		}
		path = a.next()
		pages++
	}
	return names, pages
}

func TestTagList(t *testing.T) {
	each(t, func(w *world) {
		m := w.image("shop/web", "b", "layer", "")
		for _, tag := range []string{"a", "B", "_x", "c-1", "c.1", "10", "9"} {
			w.tag("shop/web", tag, ociManifest, m)
		}
		w.image("shop/webs", "other", "layer", "")
		all := []string{"10", "9", "B", "_x", "a", "b", "c-1", "c.1"}
		for _, c := range []struct {
			query string
			want  []string
			pages int
		}{
			{"", all, 1},
			{"?n=100", all, 1},
			{"?n=8", all, 1},
			{"?n=3", all, 3},
			{"?n=1", all, 8},
			{"?last=_x", all[4:], 1},
			{"?last=_y&n=2", all[4:], 2},
			{"?last=zz", nil, 1},
			{"?n=0", nil, 1},
			{"?n=99999999", all, 1},
		} {
			got, pages := w.names("/v2/shop/web/tags/list"+c.query, "tags")
			if diff := cmp.Diff(c.want, got); diff != "" || pages != c.pages {
				w.Errorf("%q: %d pages, not %d; %s", c.query, pages, c.pages, diff)
			}
		}
		for _, n := range []string{"-1", "x", "", "1e3"} {
			w.refuses(400, registry.Unsupported, "GET", "/v2/shop/web/tags/list?n="+n, nil, nil)
		}
		for _, last := range []string{"%00", "a%00b", "%ff", "a%20b", "%C3%A4"} {
			w.refuses(400, registry.Unsupported, "GET", "/v2/shop/web/tags/list?last="+last, nil, nil)
			w.refuses(400, registry.Unsupported, "GET", "/v2/_catalog?last="+last, nil, nil)
			w.refuses(400, registry.Unsupported, "GET", "/v2/shop/web/referrers/"+sha256(m)+"?last="+last, nil, nil)
			if list := w.referrers("/v2/shop/web/referrers/" + sha256(m) + "?artifactType=" + last); len(list) != 0 {
				w.Errorf("artifacts of type %s: %v", last, list)
			}
		}
		w.refuses(404, registry.NameUnknown, "GET", "/v2/shop/none/tags/list", nil, nil)
		w.push("shop/empty", "x")
		if a := w.want(200, "GET", "/v2/shop/empty/tags/list", nil, nil); strings.TrimSpace(a.body) != `{"name":"shop/empty","tags":[]}` {
			w.Errorf("no tags: %s", a.body)
		}
	})
}

func TestCatalog(t *testing.T) {
	each(t, func(w *world) {
		if got, _ := w.names("/v2/_catalog", "repositories"); got != nil {
			w.Errorf("a new registry has %v", got)
		}
		want := []string{"a", "a-b", "a/b", "b"}
		for _, repo := range want {
			w.image(repo, "latest", "layer", "")
		}
		w.push("only/blobs", "x")
		for query, pages := range map[string]int{"": 1, "?n=1": 4, "?n=3": 2} {
			got, n := w.names("/v2/_catalog"+query, "repositories")
			if diff := cmp.Diff(want, got); diff != "" || n != pages {
				w.Errorf("%q: %d pages; %s", query, n, diff)
			}
		}
		w.refuses(400, registry.Unsupported, "GET", "/v2/_catalog?n=-5", nil, nil)
	})
}

// referrers reads all pages of referrers.
func (w *world) referrers(path string) (list []v1.Descriptor) {
	w.Helper()
	for path != "" {
		a := w.want(200, "GET", path, nil, nil)
		var index v1.Index
		if err := json.Unmarshal([]byte(a.body), &index); err != nil {
			w.Fatal(err)
		}
		if index.SchemaVersion != 2 || index.MediaType != ociIndex || a.header.Get("Content-Type") != ociIndex || index.Manifests == nil {
			w.Errorf("%s: %v %s", path, a.header, a.body)
		}
		filtered := strings.Contains(path, "artifactType=")
		if applied := a.header.Get("OCI-Filters-Applied") == "artifactType"; applied != filtered {
			w.Errorf("%s: OCI-Filters-Applied %v", path, applied)
		}
		list = append(list, index.Manifests...)
		path = a.next()
	}
	return list
}

func TestReferrers(t *testing.T) {
	each(t, func(w *world) {
		subject := sha256("a subject that was never pushed")
		path := "/v2/a/referrers/" + subject
		if got := w.referrers(path); got != nil {
			w.Errorf("of an unknown repository: %v", got)
		}
		refers := `,"subject":` + descriptor(ociManifest, subject, 100)
		plain := w.image("a", "", "layer", refers)
		signature := manifestOf("{}", "layer", refers+`,"artifactType":"application/vnd.example.signature","annotations":{"by":"me"}`)
		a := w.tag("a", "", ociManifest, signature)
		if a.header.Get("OCI-Subject") != subject {
			w.Errorf("PUT: %v", a.header)
		}
		list := indexOf(refers, plain)
		w.tag("a", "", ociIndex, list)
		// The fallback tag of clients without the referrers API changes nothing.
		w.tag("a", strings.Replace(subject, ":", "-", 1), ociIndex, indexOf("", plain, signature))
		w.image("a", "", "layer", `,"subject":`+descriptor(ociManifest, sha256("another"), 100))
		w.image("b", "", "layer", refers)

		want := map[string]v1.Descriptor{
			plain:     {MediaType: ociManifest, ArtifactType: ociConfig},
			signature: {MediaType: ociManifest, ArtifactType: "application/vnd.example.signature", Annotations: map[string]string{"by": "me"}},
			list:      {MediaType: ociIndex},
		}
		for _, c := range []struct {
			query string
			want  []string
		}{
			{"", []string{plain, signature, list}},
			{"?n=1", []string{plain, signature, list}},
			{"?artifactType=application/vnd.example.signature", []string{signature}},
			{"?artifactType=" + strings.ReplaceAll(ociConfig, "+", "%2B"), []string{plain}},
			{"?artifactType=none", nil},
			{"?n=0", nil},
		} {
			var expect []v1.Descriptor
			for _, m := range c.want {
				d := want[m]
				d.Digest, d.Size = digest.FromString(m), int64(len(m))
				expect = append(expect, d)
			}
			slices.SortFunc(expect, func(a, b v1.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
			if diff := cmp.Diff(expect, w.referrers(path+c.query)); diff != "" {
				w.Errorf("%q: %s", c.query, diff)
			}
		}
		w.want(202, "DELETE", "/v2/a/manifests/"+strings.Replace(subject, ":", "-", 1), nil, nil)
		w.want(202, "DELETE", "/v2/a/manifests/"+sha256(indexOf("", plain, signature)), nil, nil)
		w.want(202, "DELETE", "/v2/a/manifests/"+sha256(signature), nil, nil)
		if got := w.referrers(path); len(got) != 2 {
			w.Errorf("after a delete: %v", got)
		}
		w.refuses(400, registry.DigestInvalid, "GET", "/v2/a/referrers/sha256:x", nil, nil)
	})
}

// TestReferrersInPages: an answer is not larger than clients accept.
func TestReferrersInPages(t *testing.T) {
	each(t, func(w *world) {
		subject := descriptor(ociManifest, sha256("subject"), 7)
		w.image("a", "", "layer", "")
		for i := range 3 {
			w.tag("a", "", ociManifest, manifestOf("{}", "layer", fmt.Sprintf(`,"subject":%s,"annotations":{"%d":"%s"}`, subject, i, strings.Repeat("x", 2<<20))))
		}
		a := w.want(200, "GET", "/v2/a/referrers/"+sha256("subject"), nil, nil)
		if len(a.body) > 4<<20 || a.next() == "" {
			w.Errorf("%d bytes at once, Link %q", len(a.body), a.header.Get("Link"))
		}
		if got := w.referrers("/v2/a/referrers/" + sha256("subject")); len(got) != 3 {
			w.Errorf("%d of 3 referrers", len(got))
		}
	})
}

// TestPushTogether: clients that push the same images concurrently all succeed,
// and everything is stored once.
func TestPushTogether(t *testing.T) {
	each(t, func(w *world) {
		var together sync.WaitGroup
		for client := range 8 {
			together.Go(func() {
				for i := range 6 {
					layer := fmt.Sprint("layer ", (client+i)%3)
					m := w.image("shared", fmt.Sprint("tag", i), layer, "")
					w.tag("shared", fmt.Sprint("list", i), ociIndex, indexOf("", m))
					w.want(200, "GET", fmt.Sprint("/v2/shared/manifests/tag", i), nil, nil)
				}
			})
		}
		together.Wait()
		w.wantCounts("blobs 4, blob_uploads 0, manifests 6, tags 12")
	})
}

// me is a client that may do everything.
type me struct{}

func (me) Known() bool              { return true }
func (me) May(string, string) error { return nil }
func (me) Sees(string) bool         { return true }

// TestKnown: unknown clients get 401 on every path.
func TestKnown(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), registry.Config{
		Admit: func(req *http.Request) (registry.Client, error) {
			if req.Header.Get("Authorization") != "me" {
				return nil, &registry.Error{Code: registry.Unauthorized, Message: "who are you?"}
			}
			return me{}, nil
		},
	})
	w.want(200, "GET", "/v2/", headers{"Authorization": "me"}, nil)
	for _, path := range []string{"/v2/", "/v2/_catalog", "/v2/a/tags/list", "/nowhere"} {
		w.refuses(401, registry.Unauthorized, "GET", path, nil, nil)
	}
	w.refuses(401, registry.Unauthorized, "POST", "/v2/a/blobs/uploads/?digest="+sha256("x"), nil, "x")
	w.wantCounts("blobs 0, blob_uploads 0, manifests 0, tags 0")
}
