package admission

import (
	"fmt"
	"io"
	"net/http"

	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// maxAnswer limits the answer of a webhook, in bytes, in addition to four times its
// request: a conversion may make objects larger.
const maxAnswer = 16 << 20

// limitAnswers limits what the clients of webhooks read. The library reads an answer to
// its end, into memory.
func limitAnswers(next webhookutil.AuthenticationInfoResolver) webhookutil.AuthenticationInfoResolver {
	limited := func(c *rest.Config, err error) (*rest.Config, error) {
		if err == nil {
			c = rest.CopyConfig(c)
			c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return answerLimit{rt} })
		}
		return c, err
	}
	return &webhookutil.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(hostPort string) (*rest.Config, error) { return limited(next.ClientConfigFor(hostPort)) },
		ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
			return limited(next.ClientConfigForService(name, namespace, port))
		},
	}
}

type answerLimit struct{ http.RoundTripper }

func (l answerLimit) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(req)
	if err == nil {
		answer.Body = &limitedAnswer{answer.Body, maxAnswer + 4*max(0, req.ContentLength)}
	}
	return answer, err
}

// limitedAnswer fails at the limit: an answer that is cut off must not pass for a whole one.
type limitedAnswer struct {
	io.ReadCloser
	left int64
}

func (a *limitedAnswer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, fmt.Errorf("the answer of the webhook is too large: more than %d MiB and four times its request", maxAnswer>>20)
	}
	return n, err
}
