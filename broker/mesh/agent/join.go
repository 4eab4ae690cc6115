package agent

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// nameTries bounds the attempts with a suffix when the machine's name is taken.
const nameTries = 5

// join makes the agent a node: from its stored state, or by enrolling.
func (a *Agent) join(ctx context.Context) error {
	s := &a.dir.state
	if s.UID == "" {
		if err := a.draft(); err != nil {
			return err
		}
	}
	var authority atomic.Pointer[x509.Certificate]
	a.client = &client{}
	for _, server := range a.config.Servers {
		config, err := trust(a.config, server, s.Authority, authority.Store)
		if err != nil {
			return err
		}
		a.client.add(server, config)
	}
	if s.UID == "" {
		if err := a.enrol(ctx); err != nil {
			return err
		}
		if cert := authority.Load(); cert != nil {
			s.Authority = encodePEM(cert)
		}
		if err := a.dir.save(); err != nil {
			return err
		}
		a.log.Info("joined the mesh", "project", s.Project, "name", s.Name)
	} else {
		a.log.Info("back in the mesh", "project", s.Project, "name", s.Name)
		if servers := strings.Join(a.config.Servers, ","); servers != s.Server {
			s.Server = servers
			if err := a.dir.save(); err != nil {
				return err
			}
		}
	}
	a.client.credential = v1alpha1.Credential(s.UID, s.Secret)
	if a.config.Joined != nil {
		a.config.Joined(Node{Project: s.Project, Name: s.Name, UID: s.UID})
	}
	return nil
}

// draft saves the enrolment request before it is sent. It keeps a draft of an
// earlier run with the same token: the server may have granted it already.
func (a *Agent) draft() error {
	s := &a.dir.state
	if a.config.Token == "" {
		return fmt.Errorf("--token: this node has not enrolled yet; make a token with: exeunt node token create")
	}
	parts := strings.Split(strings.TrimSpace(a.config.Token), "_")
	if len(parts) != 3 {
		return fmt.Errorf("--token: this is not a bootstrap token; they look like exb_…_…")
	}
	if s.TokenID == parts[1] && s.Nonce != "" {
		return nil
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	*s = state{
		Server: strings.Join(a.config.Servers, ","), TokenID: parts[1], Nonce: rand.Text(),
		Secret: base64.RawURLEncoding.EncodeToString(secret), Name: a.config.Name,
	}
	if s.Name == "" {
		s.Name = machineName()
	}
	return a.dir.save()
}

// enrol sends the enrolment, with retries while no server answers.
func (a *Agent) enrol(ctx context.Context) error {
	s := &a.dir.state
	for try := 1; ; try++ {
		request := v1alpha1.EnrolRequest{
			Token: strings.TrimSpace(a.config.Token), Project: a.config.Project, Nonce: s.Nonce, Secret: s.Secret, Name: s.Name,
			Address: a.relay.address(a.config.Advertise), DrainTimeoutSeconds: int64((a.config.DrainTimeout + time.Second - 1) / time.Second),
		}
		var answer v1alpha1.EnrolAnswer
		err := a.client.retry(ctx, a.log, "enrol", func(ctx context.Context) error {
			return a.client.call(ctx, v1alpha1.EnrolPath, request, &answer)
		})
		if refusedFor(err, v1alpha1.ReasonNameTaken) && a.config.Name == "" && try < nameTries {
			s.Name = machineName() + "-" + strings.ToLower(rand.Text()[:5])
			if err := a.dir.save(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("enrol: %w", err)
		}
		s.UID, s.Project, s.Name = answer.UID, answer.Project, answer.Name
		return nil
	}
}
