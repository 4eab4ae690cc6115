package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestHostileText: whatever a client can write freely is text on every page: names, field
// managers, owners, users who delete, columns, conditions, messages, subjects, annotations of images.
func TestHostileText(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		type fields = map[string]any
		post := func(path string, o fields) harness.Answer {
			t.Helper()
			body, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			a := s.HTTP().Do(t, harness.Request{Method: "POST", Path: path + "?fieldManager=" + url.QueryEscape(hostile), Body: string(body)})
			if a.Code != http.StatusCreated {
				t.Fatalf("%s: %d %s", path, a.Code, a.Body)
			}
			return a
		}
		const rbac = "rbac.authorization.k8s.io"
		reference := fields{"apiVersion": "v1", "kind": hostile, "name": hostile, "uid": hostile}
		role := post("/apis/"+rbac+"/v1/namespaces/default/roles", fields{"apiVersion": rbac + "/v1", "kind": "Role", "metadata": fields{
			"name": hostile, "annotations": fields{"note": hostile}, "finalizers": []string{"example.com/x"}, "ownerReferences": []fields{reference},
		}, "rules": []fields{{"apiGroups": []string{hostile}, "resources": []string{hostile}, "resourceNames": []string{hostile}, "verbs": []string{hostile}}}})
		post("/apis/"+rbac+"/v1/namespaces/default/rolebindings", fields{"apiVersion": rbac + "/v1", "kind": "RoleBinding", "metadata": fields{"name": hostile},
			"roleRef": fields{"apiGroup": rbac, "kind": "Role", "name": hostile}, "subjects": []fields{{"apiGroup": rbac, "kind": "User", "name": hostile}}})
		post("/apis/"+rbac+"/v1/clusterroles", fields{"apiVersion": rbac + "/v1", "kind": "ClusterRole", "metadata": fields{"name": hostile, "labels": fields{"a": "b"}}})
		post("/api/v1/namespaces/default/configmaps", fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": "gone", "annotations": fields{"note": hostile}}, "data": fields{"k": hostile}})
		post("/api/v1/namespaces/default/events", fields{"apiVersion": "v1", "kind": "Event", "metadata": fields{"name": "hostile"}, "message": hostile, "reason": hostile, "type": "Warning", "source": fields{"component": hostile},
			"involvedObject": fields{"apiVersion": rbac + "/v1", "kind": "Role", "name": hostile, "namespace": "default", "uid": field(t, role, "metadata.uid")}})
		open := fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fields{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": fields{"name": "things.example.com"},
			"spec": fields{"group": "example.com", "scope": "Namespaced", "names": fields{"plural": "things", "kind": "Thing"}, "versions": []fields{{
				"name": "v1", "served": true, "storage": true, "schema": fields{"openAPIV3Schema": open},
				"additionalPrinterColumns": []fields{{"name": hostile, "type": "string", "jsonPath": ".spec.text", "description": hostile}},
			}}}})
		harness.Until(t, "the kind is served", func() error {
			if a := s.HTTP().Do(t, harness.Request{Method: "GET", Path: "/apis/example.com/v1/things"}); a.Code != http.StatusOK {
				return fmt.Errorf("%d", a.Code)
			}
			return nil
		})
		post("/apis/example.com/v1/namespaces/default/things", fields{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": fields{"name": "thing"}, "spec": fields{"text": hostile},
			"status": fields{"phase": hostile, "message": hostile, "conditions": []fields{{"type": hostile, "status": hostile, "reason": hostile, "message": hostile}}}})
		const index = "application/vnd.oci.image.index.v1+json"
		push := func(reference string, annotated fields) (digest string, size int) {
			t.Helper()
			annotated["schemaVersion"], annotated["mediaType"] = 2, index
			body, err := json.Marshal(annotated)
			if err != nil {
				t.Fatal(err)
			}
			request, err := http.NewRequest("PUT", "http://"+s.Registry()+"/v2/default/web/manifests/"+reference, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", index)
			answer, err := s.RegistryHTTP().Do(request)
			if err != nil || answer.StatusCode != http.StatusCreated {
				t.Fatal(answer, err)
			}
			answer.Body.Close()
			return answer.Header.Get("Docker-Content-Digest"), len(body)
		}
		digest, size := push("v1", fields{"manifests": []any{}, "annotations": fields{hostile: hostile, "org.opencontainers.image.title": hostile}})
		push("v2", fields{"manifests": []fields{{"mediaType": index, "digest": digest, "size": size, "platform": fields{"os": hostile, "architecture": hostile}}}})
		// The user who deletes is in the archive and in the list of running deletions.
		for _, what := range [][]string{{"configmap", "gone"}, {"role", hostile}} {
			if r := s.KubectlCommand(t, harness.Command{Args: append([]string{"delete", "--wait=false", "--as", hostile, "--as-group", "system:masters"}, what...)}); r.Code != 0 {
				t.Fatal(r.Stderr)
			}
		}
		p := openTab(t, s)
		p.signIn()
		name := url.PathEscape(hostile)
		for hash, shows := range map[string]string{
			"#/now": hostile, "#/objects": "", "#/objects/" + rbac + "/roles": hostile, "#/objects/" + rbac + "/rolebindings": hostile, "#/objects/example.com/things": hostile,
			"#/object/" + rbac + "/roles/default/" + name: hostile, "#/object/" + rbac + "/rolebindings/default/" + name: hostile, "#/object/" + rbac + "/clusterroles/-/" + name: hostile,
			"#/object/example.com/things/default/thing": hostile, "#/delete/" + rbac + "/rolebindings/default/" + name: hostile, "#/delete/example.com/things/default/thing": "thing",
			"#/why/" + field(t, role, "metadata.uid"): hostile, "#/archive": hostile, "#/registry": "default/web", "#/registry/default/web": "1 platform", "#/registry/default/web?tag=v2": hostile, "#/machines": "", "#/access": "",
		} {
			p.open(hash)
			p.until("the page "+hash, `document.querySelector("main h1, main h2")`)
			if shows != "" {
				p.see(shows)
			}
			var hacked bool
			p.eval(`window.hacked === 1 || document.querySelectorAll("img").length > 0`, &hacked)
			if hacked {
				t.Errorf("%s ran code that another user wrote", hash)
			}
		}
	})
}
