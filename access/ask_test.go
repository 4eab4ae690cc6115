package access

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAsk: a request to the API of this process carries what it is given, and its error is that of the API.
func TestAsk(t *testing.T) {
	api := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/echo":
			body, _ := io.ReadAll(req.Body)
			_, _ = io.WriteString(w, req.Method+" "+req.Header.Get("Content-Type")+" "+req.Header.Get("Accept")+" "+req.Header.Get("X-A")+" "+string(body))
			w.WriteHeader(http.StatusInternalServerError) // too late
		case "/conflict":
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"changed"}`)
		default:
			http.Error(w, "no such path", http.StatusNotFound)
		}
	})
	type own struct{}
	ctx := context.WithValue(t.Context(), own{}, 1)
	prepare := func(req *http.Request) {
		if req.Header.Set("X-A", "b"); req.Context().Value(own{}) != 1 {
			t.Error("the request has another context")
		}
	}
	if got, err := Ask(ctx, api, "PUT", "/echo", []byte("{}"), prepare); err != nil || string(got) != "PUT application/json application/json b {}" {
		t.Errorf("%q, %v", got, err)
	}
	var status apierrors.APIStatus
	if _, err := Ask(ctx, api, "GET", "/conflict", nil, prepare); !apierrors.IsConflict(err) || err.Error() != "changed" {
		t.Errorf("a conflict is %v", err)
	}
	if _, err := Ask(ctx, api, "GET", "/x", nil, prepare); !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details.Causes[0].Type != metav1.CauseTypeUnexpectedServerResponse {
		t.Errorf("a text is %v", err)
	}
	if _, err := Ask(ctx, api, "bad method", "/x", nil, prepare); err == nil {
		t.Error("a method that is none is no error")
	}
	if (Own{ctx}).Value(own{}) != nil {
		t.Error("a part of a request has the values of the request")
	}
}
