package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/store"
)

// TestAutoscalerInTwoVersions writes one autoscaler through both of its versions, by several
// field managers, and reads it through both.
func TestAutoscalerInTwoVersions(t *testing.T) {
	w := newWorld(t, store.Options{})
	const v1, v2 = "/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
	const apply = "Content-Type: application/apply-patch+yaml"
	expect := func(r reply, want map[string]string) {
		t.Helper()
		for path, value := range want {
			if got := r.get(path); got != value {
				t.Errorf("%s is %q, want %q: %s", path, got, value, r.body)
			}
		}
	}
	// kubectl autoscale
	expect(w.want(201, "POST", v1, `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"web"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"maxReplicas":5,"targetCPUUtilizationPercentage":50}}`),
		map[string]string{"apiVersion": "autoscaling/v1", "spec.minReplicas": "1", "spec.targetCPUUtilizationPercentage": "50"})
	expect(w.want(200, "GET", v2+"/web", ""), map[string]string{"apiVersion": "autoscaling/v2", "spec.metrics.0.resource.target.averageUtilization": "50", "metadata.managedFields.0.apiVersion": "autoscaling/v1"})
	w.want(200, "PATCH", v2+"/web", `{"spec":{"behavior":{"scaleDown":{"selectPolicy":"Disabled"}}}}`, "Content-Type: application/merge-patch+json")
	expect(w.want(200, "PATCH", v2+"/web/status", `{"status":{"currentReplicas":2,"desiredReplicas":3,"currentMetrics":[],"conditions":[{"type":"AbleToScale","status":"True"}]}}`, "Content-Type: application/merge-patch+json"),
		map[string]string{"status.currentReplicas": "2"})
	w.want(200, "PATCH", v2+"/web?fieldManager=two&force=true", `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"web"},"spec":{"minReplicas":2}}`, apply, "Accept: application/json")
	conflict := w.want(409, "PATCH", v1+"/web?fieldManager=one", `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"web"},"spec":{"minReplicas":3}}`, apply)
	if !strings.Contains(conflict.body, `conflict with \"two\": .spec.minReplicas`) {
		t.Errorf("the conflict is %s", conflict.body)
	}
	// An old client updates what it read, without the annotations of the status.
	r := w.want(200, "PUT", v1+"/web", `{"metadata":{"name":"web"},"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"},"maxReplicas":7,"targetCPUUtilizationPercentage":40}}`)
	expect(r, map[string]string{"spec.maxReplicas": "7", "status.desiredReplicas": "3"})
	expect(w.want(200, "GET", v2+"/web", ""), map[string]string{
		"spec.metrics.0.resource.target.averageUtilization": "40", "spec.behavior": "", "status.conditions.0.type": "AbleToScale", "status.desiredReplicas": "3",
	})
	expect(w.want(200, "GET", v1, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"), map[string]string{"columnDefinitions.1.name": "Reference", "rows.0.cells.1": "Deployment/web"})
	expect(w.want(200, "GET", "/apis/autoscaling", ""), map[string]string{"preferredVersion.version": "v2", "versions.1.version": "v1"})
	expect(w.want(http.StatusBadRequest, "POST", v1, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"db"}}`), nil)
	expect(w.want(200, "DELETE", v1+"/web", ""), map[string]string{"status": "Success"})
	w.want(404, "GET", v2+"/web", "")
}
