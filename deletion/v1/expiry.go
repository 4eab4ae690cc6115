package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ExpiryPreview asks which objects a policy of expiry takes, and when, if it is started and no
// object changes. The answer is in status; nothing is stored.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type ExpiryPreview struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec names the policy.
	Spec ExpiryPreviewSpec `json:"spec"`
	// Status is the answer.
	Status ExpiryPreviewStatus `json:"status,omitempty"`
}

// ExpiryPreviewSpec names the policy.
type ExpiryPreviewSpec struct {
	// Policy is the name of the policy.
	Policy string `json:"policy"`
	// Namespace is that of an ExpiryPolicy; empty for a ClusterExpiryPolicy.
	Namespace string `json:"namespace,omitempty"`
	// Until is how far the preview looks: "7d", which is the default, at most a year.
	Until string `json:"until,omitempty"`
	// Limit bounds the objects of the answer, the first that go: 500 if zero, at most 10,000.
	Limit int64 `json:"limit,omitempty"`
}

// ExpiryPreviewStatus is what the policy takes.
type ExpiryPreviewStatus struct {
	// Objects go at their time, the first one first.
	Objects []ExpiringObject `json:"objects,omitempty"`
	// Days are the days (UTC) on which objects go.
	Days []ExpiryDay `json:"days,omitempty"`
	// Total is how many objects are due, also those that wait or are not in the answer.
	Total int64 `json:"total"`
	// Waiting is how many of them wait, because the policy would take more than was confirmed.
	Waiting int64 `json:"waiting,omitempty"`
	// Later is how many of them go after the time that was asked about, because of the policy's rate.
	Later int64 `json:"later,omitempty"`
	// Most is how many objects the policy takes in a day without another confirmation; -1: any number.
	Most int64 `json:"most"`
	// Failed is how many objects stay because the condition cannot be evaluated.
	Failed int64 `json:"failed,omitempty"`
	// Problem is why, for one of them.
	Problem string `json:"problem,omitempty"`
}

// ExpiringObject is an object that a policy takes.
type ExpiringObject struct {
	// Object is the object.
	Object ObjectReference `json:"object"`
	// At is when it goes.
	At metav1.Time `json:"at"`
	// Waits says that it stays until the policy is confirmed again.
	Waits bool `json:"waits,omitempty"`
}

// ExpiryDay is what goes on a day.
type ExpiryDay struct {
	// Date is the day (UTC), as 2026-11-19.
	Date string `json:"date"`
	// Objects is how many objects are due.
	Objects int64 `json:"objects"`
	// Waiting is how many of them wait.
	Waiting int64 `json:"waiting,omitempty"`
}
