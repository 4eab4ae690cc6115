package crash_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// reviewAtOnce makes the registry review at once. Promises still hold for a while, because
// a push on a slow machine takes that long.
const reviewAtOnce = "blob_upload=0s,manifest_upload=0s,manifest_delete=0s,layer_delete=0s,manifest_list_delete=0s," +
	"tag_delete=0s,tag_switch=0s,subject_delete=0s,blob_delete=0s,upload_delete=0s,existence_check=5s"

// TestKillRegistry loops: push, delete tags, Repositories and namespaces, and collect;
// kill the process at a random moment, start it again. Every acknowledged tag has its
// manifest and all its bytes, interrupted deletions continue, and registry verify finds no
// error.
func TestKillRegistry(t *testing.T) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		for _, s3 := range []bool{false, true} {
			if s3 != (engine == harness.Postgres) && testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("%s/s3=%v", engine, s3), func(t *testing.T) { killRegistry(t, engine, s3) })
		}
	}
}

func killRegistry(t *testing.T, engine string, s3 bool) {
	var storage []string
	if s3 {
		storage = []string{"--registry-storage", harness.S3(t)}
	}
	// Nothing is archived: a removed repository loses its content at once.
	s := harness.Start(t, engine, append([]string{"--registry-review-after", reviewAtOnce, "--archive-for", "0"}, storage...)...)
	pushers := make([]*pusher, 4)
	for i := range pushers {
		pushers[i] = &pusher{
			t: t, url: fmt.Sprintf("http://%s/v2/crash%d/app", s.Registry(), i), tags: map[string]tag{},
			rng: rand.New(rand.NewPCG(uint64(i), 2)), http: s.RegistryHTTP(),
			api: s.HTTP(), namespace: fmt.Sprint("crash", i),
		}
	}
	for _, p := range pushers {
		p.http.Timeout = harness.Patience
	}
	acknowledged, rounds := 0, 2**killRounds
	for round := range rounds {
		stop := make(chan struct{})
		var group sync.WaitGroup
		for i, p := range pushers {
			removes := i == round%len(pushers) // every round has one, even if a slow machine pushes little
			group.Go(func() {
				if !removes || p.remove(round%2 == 0) == nil {
					p.run(stop)
				}
			})
		}
		// The random moment of the kill, not a wait for a condition.
		time.Sleep(time.Duration(300+200*round) * time.Millisecond)
		s.Kill()
		close(stop)
		group.Wait()
		s.Start()
		for _, p := range pushers {
			acknowledged += p.compare()
		}
	}
	if acknowledged < rounds {
		t.Errorf("only %d pushes were acknowledged: the test is void", acknowledged)
	}
	s.VerifyRegistry(t, storage...)
	removed := 0
	for _, p := range pushers {
		removed += p.removed
		p.empty()
	}
	t.Logf("%d tags checked over %d crashes; %d Repositories and namespaces were deleted", acknowledged, rounds, removed)
	// Only blobs of the uploads that the last kill interrupted remain. Other replicas take
	// over the claimed reviews, or the lease must expire first.
	harness.Within(t, time.Minute+harness.Patience, "all content to go", func() error {
		if left := s.VerifyRegistry(t, storage...); !strings.HasPrefix(left, "0 manifests, 0 blobs,") {
			return fmt.Errorf("there are %s", left)
		}
		return nil
	})
}

// tag is what a pusher knows about one of its tags: the manifest that was acknowledged
// last ("" if the tag does not exist) and, if an answer was lost, the manifest that it may
// have instead.
type tag struct {
	manifest, maybe string
	unsure          bool
}

// pusher pushes to its own repository in its own namespace, and deletes from it.
type pusher struct {
	t         *testing.T
	url       string
	http      *http.Client
	api       *harness.HTTP
	namespace string
	rng       *rand.Rand
	tags      map[string]tag
	n         int
	removed   int // Repositories and namespaces
}

// run pushes and deletes until stop or until the server is gone.
func (p *pusher) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if len(p.tags) > 2 && p.rng.IntN(8) == 0 {
			if p.remove(p.rng.IntN(2) == 0) != nil {
				return
			}
			continue
		}
		name := fmt.Sprint("t", p.rng.IntN(5))
		now := p.tags[name]
		next, err := "", error(nil)
		if now.manifest != "" && p.rng.IntN(3) == 0 {
			err = p.expect(202, "DELETE", p.url+"/manifests/"+name, "", nil)
		} else {
			next, err = p.push(name)
		}
		if err != nil {
			p.tags[name] = tag{now.manifest, next, true}
			return
		}
		p.tags[name] = tag{manifest: next}
	}
}

// push pushes an image with layers of all sizes, in one request or in several. It returns
// the manifest even if the push failed.
func (p *pusher) push(name string) (string, error) {
	p.n++
	config := fmt.Appendf(nil, `{"n":%d}`, p.n)
	layer := bytes.Repeat(fmt.Appendf(nil, "%s %d ", p.url, p.n), []int{1, 100, 5000, 200_000}[p.rng.IntN(4)])
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}`,
		descriptor("config", config), descriptor("layer", layer))
	if err := p.expect(201, "POST", p.url+"/blobs/uploads/?digest="+digest(config), "", config); err != nil {
		return manifest, err
	}
	if err := p.pushChunks(layer); err != nil {
		return manifest, err
	}
	return manifest, p.expect(201, "PUT", p.url+"/manifests/"+name, "application/vnd.oci.image.manifest.v1+json", []byte(manifest))
}

func (p *pusher) pushChunks(layer []byte) error {
	answer, err := p.do("POST", p.url+"/blobs/uploads/", "", nil)
	if err != nil || answer.StatusCode != 202 {
		return p.refused(answer, err)
	}
	base, _, _ := bytes.Cut([]byte(p.url), []byte("/v2/"))
	at := string(base) + answer.Header.Get("Location")
	half := len(layer) / 2
	for _, chunk := range [][]byte{layer[:half], layer[half:]} {
		if err := p.expect(202, "PATCH", at, "application/octet-stream", chunk); err != nil {
			return err
		}
	}
	return p.expect(201, "PUT", at+"?digest="+digest(layer), "", nil)
}

// remove deletes the Repository or its namespace, and with it all tags. A Repository is
// gone when the delete is answered; a namespace is gone later.
func (p *pusher) remove(namespace bool) error {
	path := p.repository()
	if namespace {
		path = "/api/v1/namespaces/" + p.namespace
	}
	answer, err := p.api.Try(harness.Request{Method: "DELETE", Path: path})
	for err == nil && namespace && answer.Code != http.StatusNotFound {
		answer, err = p.api.Try(harness.Request{Method: "GET", Path: path})
	}
	if err != nil {
		for name, now := range p.tags {
			p.tags[name] = tag{now.manifest, "", true}
		}
		return err
	}
	if !namespace && answer.Code != http.StatusOK && answer.Code != http.StatusNotFound {
		p.t.Errorf("DELETE %s: %d %s", path, answer.Code, answer.Body)
		return fmt.Errorf("status %d", answer.Code)
	}
	clear(p.tags)
	p.removed++
	return nil
}

func (p *pusher) repository() string {
	return "/apis/registry.exeunt.dev/v1/namespaces/" + p.namespace + "/repositories/app"
}

// settled returns when the namespace is not being deleted.
func (p *pusher) settled() {
	p.t.Helper()
	harness.Until(p.t, p.namespace+" to go", func() error {
		answer, err := p.api.Try(harness.Request{Method: "GET", Path: "/api/v1/namespaces/" + p.namespace})
		if err == nil && answer.Field("metadata.deletionTimestamp") != "" {
			err = errors.New("it is Terminating")
		}
		return err
	})
}

// empty deletes the namespace for good.
func (p *pusher) empty() {
	p.t.Helper()
	if _, err := p.api.Try(harness.Request{Method: "DELETE", Path: "/api/v1/namespaces/" + p.namespace}); err != nil {
		p.t.Error(err)
	}
	p.settled()
}

// compare checks every belief against the registry, resolves the uncertain ones, and
// returns how many tags are complete.
func (p *pusher) compare() (whole int) {
	p.settled()
	for name, believed := range p.tags {
		manifest, status := p.get("/manifests/" + name)
		if status == 404 {
			manifest = ""
		}
		if manifest != believed.manifest && !(believed.unsure && manifest == believed.maybe) {
			p.t.Errorf("%s:%s is %q; acknowledged was %q (perhaps %q: %v)", p.url, name, manifest, believed.manifest, believed.maybe, believed.unsure)
		}
		p.tags[name] = tag{manifest: manifest}
		if manifest == "" {
			continue
		}
		for _, d := range digests(manifest) {
			if content, status := p.get("/blobs/" + d); status != 200 || digest([]byte(content)) != d {
				p.t.Errorf("%s:%s: blob %s: status %d, %d bytes", p.url, name, d, status, len(content))
			}
		}
		whole++
	}
	return whole
}

func (p *pusher) get(path string) (content string, status int) {
	answer, err := p.http.Get(p.url + path)
	if err != nil {
		p.t.Error(err)
		return "", 0
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Errorf("GET %s: %v", path, err)
	}
	return string(body), answer.StatusCode
}

// expect sends a request. If the server answers, the status must be this one.
func (p *pusher) expect(status int, method, url, contentType string, body []byte) error {
	answer, err := p.do(method, url, contentType, body)
	if err != nil || answer.StatusCode != status {
		return p.refused(answer, err)
	}
	return nil
}

// refused fails the test if the registry refused the request: a request may fail only
// because the server is gone.
func (p *pusher) refused(answer *http.Response, err error) error {
	if err != nil {
		return err
	}
	p.t.Errorf("%s %s: %s", answer.Request.Method, answer.Request.URL, answer.Status)
	return fmt.Errorf("status %s", answer.Status)
}

// do sends a request, and reads and drops the answer.
func (p *pusher) do(method, url, contentType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	answer, err := p.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer, err
}

func digest(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func descriptor(kind string, content []byte) string {
	types := map[string]string{
		"config": "application/vnd.oci.image.config.v1+json", "layer": "application/vnd.oci.image.layer.v1.tar+gzip",
	}
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, types[kind], digest(content), len(content))
}

// digests finds the digests in a manifest.
func digests(manifest string) (found []string) {
	for rest := []byte(manifest); ; {
		_, after, ok := bytes.Cut(rest, []byte(`"digest":"`))
		if !ok {
			return found
		}
		d, tail, _ := bytes.Cut(after, []byte(`"`))
		found, rest = append(found, string(d)), tail
	}
}
