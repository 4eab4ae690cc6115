package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// atRest returns the places in the server's database that contain a text.
func atRest(t *testing.T, s *harness.Server, text string) (found []string) {
	t.Helper()
	if s.Engine == harness.Postgres {
		for _, table := range s.Query(`SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()`) {
			rows := s.Query(`SELECT left(r::text, 80) FROM `+table+` AS r WHERE strpos(r::text, $1) > 0 OR strpos(r::text, $2) > 0`,
				text, hex.EncodeToString([]byte(text)))
			if len(rows) > 0 {
				found = append(found, table+": "+rows[0])
			}
		}
		return found
	}
	for _, path := range []string{s.Database, s.Database + "-wal"} {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
	}
	return found
}

const (
	secretsPath = "/api/v1/namespaces/default/secrets"
	// applied is an annotation in which kubectl apply repeats the Secret.
	secretBody = `{"apiVersion":"v1","kind":"Secret","type":"example.com/token","metadata":{"name":"token","labels":{"app":"shop"},
		"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{\"password\":\"%[1]s\"}}"}},"data":{"password":%[1]q}}`
)

// TestSecretsAtRest: through all operations on a Secret, its content is not in the
// database, and yet the server serves, selects (by label and type), archives and restores
// it.
func TestSecretsAtRest(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		var values []string
		next := func() string {
			plain := fmt.Sprintf("correct-horse-battery-staple-%d", len(values)/2)
			encoded := base64.StdEncoding.EncodeToString([]byte(plain))
			values = append(values, plain, encoded)
			return encoded
		}
		clean := func(when string) {
			t.Helper()
			for _, value := range values {
				if found := atRest(t, s, value); len(found) > 0 {
					t.Errorf("%s: %s is in %v", when, value, found)
				}
			}
		}
		do := func(method, path, body string, code int) harness.Answer {
			t.Helper()
			answer := s.HTTP().Do(t, harness.Request{Method: method, Path: path, Body: body})
			if answer.Code != code {
				t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
			}
			return answer
		}
		do("POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"plain-for-comparison"}}`, 201)
		if len(atRest(t, s, "plain-for-comparison")) == 0 {
			t.Fatal("the search does not find a text that is in the database")
		}
		do("POST", secretsPath, fmt.Sprintf(secretBody, next()), 201)
		clean("create")
		last := next()
		do("PUT", secretsPath+"/token", fmt.Sprintf(secretBody, last), 200)
		clean("update")
		s.Restart()
		clean("restart")
		for _, query := range []string{"", "?fieldSelector=type%3Dexample.com/token", "?labelSelector=app%3Dshop"} {
			if a := do("GET", secretsPath+query, "", 200); a.Field("items.0.data.password") != fmt.Sprintf("%q", last) {
				t.Errorf("list %q: %s", query, a.Body)
			}
		}
		if a := do("GET", secretsPath+"?fieldSelector=type%3Dother", "", 200); a.Field("items.0") != "" {
			t.Errorf("list of another type: %s", a.Body)
		}
		do("DELETE", secretsPath+"/token", "", 200)
		clean("delete and archive")
		s.Kill()
		clean("kill")
		s.Start()
		if r := s.Exeunt(t, "restore", "secret/token", "-n", "default"); r.Code != 0 {
			t.Fatalf("restore: %s%s", r.Stdout, r.Stderr)
		}
		if a := do("GET", secretsPath+"/token", "", 200); a.Field("data.password") != fmt.Sprintf("%q", last) {
			t.Errorf("restored: %s", a.Body)
		}
		clean("restore")
		// The collector, the preview and the restore of a cascade read bodies too.
		do("POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, 201)
		const inShop = "/api/v1/namespaces/shop/secrets"
		last = next()
		do("POST", inShop, fmt.Sprintf(secretBody, last), 201)
		if r := s.Exeunt(t, "preview", "namespace/shop"); r.Code != 0 || !strings.Contains(r.Stdout, "token") {
			t.Errorf("preview: %s%s", r.Stdout, r.Stderr)
		}
		cascade := strings.Trim(do("GET", "/api/v1/namespaces/shop", "", 200).Field("metadata.uid"), `"`)
		do("DELETE", "/api/v1/namespaces/shop", "", 200)
		harness.Until(t, "the namespace is gone", func() error {
			if a := s.HTTP().Do(t, harness.Request{Method: "GET", Path: "/api/v1/namespaces/shop"}); a.Code != 404 {
				return fmt.Errorf("it still exists: %d", a.Code)
			}
			return nil
		})
		clean("cascade")
		if r := s.Exeunt(t, "restore", "--cascade", cascade); r.Code != 0 {
			t.Fatalf("restore: %s%s", r.Stdout, r.Stderr)
		}
		if a := do("GET", inShop+"/token", "", 200); a.Field("data.password") != fmt.Sprintf("%q", last) {
			t.Errorf("restored with its namespace: %s", a.Body)
		}
		clean("restore of the cascade")
		s.Stop()
		clean("stop")
	})
}

// TestReplicaNeedsTheKey: a replica with the same key reads the Secrets that the first one
// sealed; a replica without it refuses to start.
func TestReplicaNeedsTheKey(t *testing.T) {
	s := harness.Start(t, harness.Postgres)
	body := fmt.Sprintf(secretBody, base64.StdEncoding.EncodeToString([]byte("shared")))
	if a := s.HTTP().Do(t, harness.Request{Method: "POST", Path: secretsPath, Body: body}); a.Code != 201 {
		t.Fatalf("create: %s", a.Body)
	}
	other := s.Replica(t)
	if a := other.HTTP().Get(t, secretsPath+"/token"); a.Code != 200 || !strings.Contains(string(a.Body), "c2hhcmVk") {
		t.Errorf("the replica answers %d %s", a.Code, a.Body)
	}
	stranger := harness.Refused(t, s)
	for _, want := range []string{"encryption.yaml is missing", "sealed with key", "Nothing is lost"} {
		if !strings.Contains(stranger, want) {
			t.Errorf("a replica without the key says: %s", stranger)
		}
	}
}
