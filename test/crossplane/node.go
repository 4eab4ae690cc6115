package crossplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// node is the agent on a machine.
type node struct {
	request map[string]any // repeated unchanged if the answer is lost
	uid     string         // empty if not enrolled yet
	left    bool
	secret  string
}

// boot enrols the node of a machine, once, with the token in its Secret.
func (d *Double) boot(ctx context.Context, m *unstructured.Unstructured) error {
	key := string(m.GetUID())
	d.mu.Lock()
	n := d.nodes[key]
	d.mu.Unlock()
	if n != nil && n.uid != "" {
		return nil
	}
	name, _, _ := unstructured.NestedString(m.Object, "spec", "tokenSecret")
	secret, err := d.client.Resource(secrets).Namespace(m.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	text, _, _ := unstructured.NestedString(secret.Object, "data", "token")
	token, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	if n == nil || n.request["token"] != string(token) {
		n = &node{secret: newSecret()}
		n.request = map[string]any{
			"token": string(token), "project": m.GetNamespace(), "nonce": rand.Text(), "secret": n.secret, "name": m.GetName(),
			"drainTimeoutSeconds": 600,
		}
		d.mu.Lock()
		d.nodes[key] = n // before the request: if the answer is lost, the same request is repeated
		d.mu.Unlock()
	}
	var answer struct {
		UID string `json:"uid"`
	}
	if err := d.call(ctx, "enrol", "", n.request, &answer); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n.uid = answer.UID
	return nil
}

// newSecret returns 32 random bytes in base64url.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// destroy ends a machine. It records a violation if the node has not left the mesh. The node
// may have left with an answer that was lost, so destroy asks; an error means that it could not.
func (d *Double) destroy(ctx context.Context, m *unstructured.Unstructured) error {
	d.mu.Lock()
	n := d.nodes[string(m.GetUID())]
	d.mu.Unlock()
	if n == nil || n.uid == "" || n.left {
		return nil
	}
	err := d.call(ctx, "heartbeat", n.credential(), struct{}{}, nil)
	if err != nil && !unknown(err) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n.left = true
	if err == nil {
		d.violations = append(d.violations, "machine "+m.GetName()+" was destroyed while its node was in the mesh")
	}
	return nil
}

func (n *node) credential() string { return "exn_" + n.uid + "_" + n.secret }

// unknown reports whether the server answered that the node is not in the mesh.
func unknown(err error) bool { return err != nil && strings.Contains(err.Error(), "UnknownNode") }

// heartbeats sends a heartbeat for every node, and drains the nodes that the server asks
// to drain.
func (d *Double) heartbeats(ctx context.Context, b Behaviour) {
	d.mu.Lock()
	var all []*node
	for _, n := range d.nodes {
		if n.uid != "" && !n.left {
			all = append(all, n)
		}
	}
	d.mu.Unlock()
	for _, n := range all {
		var answer struct {
			Self struct {
				Draining bool `json:"draining"`
			} `json:"self"`
		}
		err := d.call(ctx, "heartbeat", n.credential(), struct{}{}, &answer)
		gone := unknown(err)
		if err == nil && answer.Self.Draining && !b.MuteNodes {
			gone = d.call(ctx, "drained", n.credential(), struct{}{}, nil) == nil
		}
		if gone {
			d.mu.Lock()
			n.left = true
			d.mu.Unlock()
		}
	}
}

func (d *Double) call(ctx context.Context, what, credential string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.config.Host+"/exeunt/mesh/node/"+what, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := d.anyone.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", what, resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
