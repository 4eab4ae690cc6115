package repository

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/sqldb"
)

// ask sends a request to the API, as an administrator.
func (w *world) ask(method, path, body string) *httptest.ResponseRecorder {
	w.Helper()
	req := accesstest.Admin(httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(body)))
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.api.ServeHTTP(answer, req)
	return answer
}

// limitNamespace sets the bytes of a namespace; "" takes the limit away.
func (w *world) limitNamespace(namespace, most string) {
	w.Helper()
	path := "/api/v1/namespaces/" + namespace + "/resourcequotas"
	if a := w.ask("DELETE", path+"/bytes", ""); a.Code != 200 && a.Code != 404 {
		w.Fatalf("delete quota: %d %s", a.Code, a.Body)
	}
	if most == "" {
		return
	}
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"bytes"},"spec":{"hard":{"registry.exeunt.dev/bytes":%q}}}`, most)
	if a := w.ask("POST", path, body); a.Code != 201 {
		w.Fatalf("create quota: %d %s", a.Code, a.Body)
	}
}

// limitRepository sets the quota of a Repository; "" takes it away.
func (w *world) limitRepository(namespace, name, most string) {
	w.Helper()
	if err := w.update(namespace, name, func(u *unstructured.Unstructured) {
		spec := u.Object["spec"].(map[string]any)
		delete(spec, "quota")
		if most != "" {
			spec["quota"] = most
		}
	}); err != nil {
		w.Fatal(err)
	}
}

// blob pushes a blob.
func (w *world) blob(repo, content string) *httptest.ResponseRecorder {
	return w.do("POST", "/v2/"+repo+"/blobs/uploads/?digest="+digest.FromString(content).String(), "application/octet-stream", content)
}

// checkQuotas compares what is counted with what there is, for each limit.
func (w *world) checkQuotas() {
	w.Helper()
	for _, line := range w.Strings(`
		SELECT q.name || ' counts ' || q.bytes || ', and there are ' || t.bytes FROM registry_quotas q JOIN (
			SELECT p.uid, coalesce(sum(b.size), 0) AS bytes FROM registry_quotas p
			LEFT JOIN repositories r ON r.object_uid = p.uid OR r.top_level_namespace_id = (SELECT n.id FROM top_level_namespaces n WHERE n.name = p.namespace)
			LEFT JOIN repository_blobs l ON l.repository_id = r.id LEFT JOIN blobs b ON b.id = l.blob_id
			GROUP BY p.uid) t ON t.uid = q.uid WHERE t.bytes <> q.bytes`) {
		w.Error(line)
	}
}

func size(n, i int) string { return fmt.Sprintf("%0*d", n, i) }

// TestQuotas: blobs fit exactly or are refused, in a repository and in all of a namespace; each counts once in each
// repository; a refused one leaves nothing; the quota may be lowered, raised and removed.
func TestQuotas(t *testing.T) {
	each(t, func(w *world) {
		for _, repo := range []string{"shop/web", "shop/api"} {
			if a := w.blob(repo, size(100, 0)); a.Code != 201 {
				w.Fatalf("push: %d %s", a.Code, a.Body)
			}
		}
		fits := func(want bool, repo string, i int) {
			w.Helper()
			a := w.blob(repo, size(100, i))
			if want && a.Code != 201 || !want && (a.Code != 403 || !strings.Contains(a.Body.String(), "does not fit") || !strings.Contains(a.Body.String(), `"DENIED"`)) {
				w.Errorf("blob %d to %s: %d %s", i, repo, a.Code, a.Body)
			}
			w.checkQuotas()
		}
		w.limitRepository("shop", "web", "300")
		w.limitNamespace("shop", "400")
		fits(true, "shop/web", 1)
		fits(true, "shop/web", 2)
		fits(false, "shop/web", 3) // the repository is full
		fits(true, "shop/web", 2)  // it is there
		fits(false, "shop/api", 1) // the namespace is full: it counts there again
		w.want(403, "ResourceQuota bytes in namespace shop", "POST", "/v2/shop/api/blobs/uploads/?mount="+digest.FromString(size(100, 1)).String())
		fits(true, "fair/web", 3)
		w.limitNamespace("shop", "")
		fits(true, "shop/api", 1)
		w.limitNamespace("shop", "250") // less than there is
		fits(false, "shop/api", 2)
		w.limitNamespace("shop", "1Ki")
		fits(true, "shop/api", 2)
		w.limitRepository("shop", "web", "1k")
		fits(true, "shop/web", 3)
		w.limitRepository("shop", "web", "")
		w.limitNamespace("shop", "")
		if n := w.Count(`SELECT count(*) FROM registry_quotas`); n != 0 {
			w.Errorf("%d limits are left", n)
		}
	})
}

// TestQuotaTogether: of blobs that are pushed at once, exactly as many as fit are stored.
func TestQuotaTogether(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "1", "x")
		w.push("shop/api", "1", "x")
		w.limitNamespace("shop", fmt.Sprint(w.Count(`SELECT sum(b.size) FROM repository_blobs l JOIN blobs b ON b.id = l.blob_id`)+550))
		answers := make(chan int, 12)
		for i := range cap(answers) {
			go func() { answers <- w.blob([]string{"shop/web", "shop/api"}[i%2], size(100, i)).Code }()
		}
		codes := map[int]int{}
		for range cap(answers) {
			codes[<-answers]++
		}
		if codes[201] != 5 || codes[403] != cap(answers)-5 {
			w.Errorf("answers: %v", codes)
		}
		w.checkQuotas()
	})
}

// TestQuotaGivenBack: what the collector removes, or a deletion of a blob, can be used again; a Repository that was removed
// counts until its content is gone, and one that is restored counts as before.
func TestQuotaGivenBack(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "1", size(100, 1))
		w.limitNamespace("shop", "250")
		w.limitRepository("shop", "web", "250")
		if a := w.tryPush("shop/api", "1", size(200, 2)); a.Code != 403 {
			w.Errorf("push: %d %s", a.Code, a.Body)
		}
		w.delete("shop", "web")
		w.checkQuotas()
		if a := w.tryPush("shop/api", "1", size(200, 2)); a.Code != 403 {
			w.Errorf("push while the archive has the other: %d %s", a.Code, a.Body)
		}
		w.restore("shop", "web")
		w.checkQuotas()
		if n := w.Count(`SELECT count(*) FROM registry_quotas WHERE bytes = 102 OR namespace IS NOT NULL`); n != 2 {
			w.Errorf("%d limits count what there is", n)
		}
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/1")
		for range 3 {
			w.clock.Advance(25 * time.Hour)
			w.collect()
		}
		w.checkQuotas()
		w.push("shop/api", "1", size(200, 2))
		w.want(202, "", "DELETE", "/v2/shop/api/blobs/"+digest.FromString(size(200, 2)).String())
		w.push("shop/web", "2", size(200, 3))
		w.checkQuotas()
	})
}

// TestQuotaWorlds: in random worlds, what is counted is what there is, after each step.
func TestQuotaWorlds(t *testing.T) {
	each(t, func(w *world) {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 1))
		w.Logf("seed %d", seed)
		repos := []string{"shop/web", "shop/api", "fair/web"}
		for _, repo := range repos {
			w.push(repo, "t0", "first")
		}
		pick := func() (repo, namespace, name string) {
			repo = repos[random.IntN(len(repos))]
			namespace, name, _ = strings.Cut(repo, "/")
			return
		}
		for range 120 {
			repo, namespace, name := pick()
			n := random.IntN(6)
			most := []string{"", "200", "400", "1Ki", "10M"}[random.IntN(5)]
			switch random.IntN(9) {
			case 0, 1, 2:
				w.tryPush(repo, fmt.Sprint("t", n), size(60+n, n))
			case 3:
				w.do("POST", "/v2/"+repo+"/blobs/uploads/?mount="+digest.FromString(size(60+n, n)).String(), "", "")
			case 4:
				w.do("DELETE", "/v2/"+repo+"/manifests/t"+fmt.Sprint(n), "", "")
			case 5:
				w.do("DELETE", "/v2/"+repo+"/blobs/"+digest.FromString(size(60+n, n)).String(), "", "")
			case 6:
				w.limitNamespace(namespace, most)
			case 7:
				if w.object(namespace, name) != nil {
					w.limitRepository(namespace, name, most)
				}
			case 8:
				switch {
				case random.IntN(2) == 0:
					w.clock.Advance(25 * time.Hour)
					w.collect()
				case w.object(namespace, name) == nil:
					w.restore(namespace, name)
				default:
					w.delete(namespace, name)
				}
			}
			if w.checkQuotas(); w.Failed() {
				return
			}
		}
	})
}

// TestRaceNewQuota: a limit that comes while a blob is linked, or unlinked, waits for that, and counts what is there then;
// a link that comes while a limit is made waits for it, and counts.
func TestRaceNewQuota(t *testing.T) {
	each(t, func(w *world) {
		if w.DB.Engine() != sqldb.Postgres {
			return // one writer: one comes before the other
		}
		w.push("shop/web", "1", "one")
		link := `INSERT INTO repository_blobs (top_level_namespace_id, repository_id, blob_id, created_at)
			SELECT r.top_level_namespace_id, r.id, b.id, 0 FROM repositories r, blobs b WHERE r.path = 'shop/web' AND b.digest = $1`
		unlink := `DELETE FROM repository_blobs WHERE blob_id = (SELECT id FROM blobs WHERE digest = $1) AND repository_id = (SELECT id FROM repositories WHERE path = 'shop/web')`
		w.push("fair/web", "1", "two")
		two := digest.FromString("two").String()
		for round, statement := range []string{link, unlink} {
			for _, limit := range []func(string){func(most string) { w.limitNamespace("shop", most) }, func(most string) { w.limitRepository("shop", "web", most) }} {
				if round == 1 {
					w.Exec(link, two)
				}
				tx, err := w.DB.Begin(w.Context())
				if err != nil {
					w.Fatal(err)
				}
				if err := tx.Exec(w.Context(), statement, two); err != nil {
					w.Fatal(err)
				}
				done := make(chan bool)
				go func() { limit("1Gi"); close(done) }()
				w.waiting(1)
				if err := tx.Commit(w.Context()); err != nil {
					w.Fatal(err)
				}
				<-done
				if w.checkQuotas(); w.Count(`SELECT count(*) FROM registry_quotas WHERE most = 1073741824`) != 1 {
					w.Error("no limit was made")
				}
				limit("")
				w.Exec(unlink, two)
			}
		}
	})
}
