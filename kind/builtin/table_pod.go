package builtin

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podTable() table[*corev1.Pod] {
	cols := columns(
		text("Ready", "How many of the pod's containers are ready."),
		text("Status", "What the pod's containers are doing, in one word."),
		text("Restarts", "How often containers were restarted, and when last."),
	)
	return table[*corev1.Pod]{
		columns: append(cols,
			wide(text("IP", "The pod's address.")),
			wide(text("Node", "The node the pod is bound to.")),
			wide(text("Nominated Node", "The node that is being cleared for the pod.")),
			wide(text("Readiness Gates", "How many of the pod's readiness gates are open.")),
		),
		row:        podRow,
		conditions: podConditions,
	}
}

func podRow(pod *corev1.Pod, now time.Time) []any {
	s := summarize(pod)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts > 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, since(s.lastRestart, now))
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, restarts, age(pod, now),
		or(ip, none), or(pod.Spec.NodeName, none), or(pod.Status.NominatedNodeName, none), readinessGates(pod),
	}
}

func podConditions(pod *corev1.Pod) []metav1.TableRowCondition {
	switch pod.Status.Phase {
	case corev1.PodSucceeded:
		return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
			Reason: string(corev1.PodSucceeded), Message: "The pod has completed successfully."}}
	case corev1.PodFailed:
		return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue,
			Reason: string(corev1.PodFailed), Message: "The pod failed."}}
	}
	return nil
}

func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if podCondition(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}

func podCondition(pod *corev1.Pod, t corev1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podSummary holds a pod's cells.
type podSummary struct {
	ready, total, restarts int
	lastRestart            time.Time
	reason                 string
}

// summarize computes the cells from the container statuses. While an init container is not
// done, its status is shown. Init containers that keep running (sidecars) count as
// containers.
func summarize(pod *corev1.Pod) podSummary {
	s := podSummary{total: len(pod.Spec.Containers), reason: or(pod.Status.Reason, string(pod.Status.Phase))}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.total++
		}
	}
	initializing, ofSidecars := s.initContainers(pod, sidecars)
	if !initializing || podCondition(pod, corev1.PodInitialized) {
		// After initialization, only the restarts of sidecars and containers count.
		s.restarts, s.lastRestart = ofSidecars.restarts, ofSidecars.lastRestart
		s.containers(pod)
	}
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Reason == "NodeLost":
			s.reason = "Unknown"
		case pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			s.reason = "Terminating"
		}
	}
	return s
}

// initContainers reads the statuses of the init containers up to the first that is not
// done, and says whether there is one.
func (s *podSummary) initContainers(pod *corev1.Pod, sidecars map[string]bool) (initializing bool, ofSidecars podSummary) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.countRestarts(c)
		if sidecars[c.Name] {
			ofSidecars.countRestarts(c)
		}
		terminated, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case terminated != nil:
			s.reason = "Init:" + terminatedReason(terminated)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true, ofSidecars
	}
	return false, ofSidecars
}

// containers reads the containers' statuses from the last to the first, because the state of
// the first container is shown.
func (s *podSummary) containers(pod *corev1.Pod) {
	running, failure := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.countRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = terminatedReason(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	// One container has completed; others may still run.
	switch {
	case running && podCondition(pod, corev1.PodReady):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func (s *podSummary) countRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if last := c.LastTerminationState.Terminated; last != nil && s.lastRestart.Before(last.FinishedAt.Time) {
		s.lastRestart = last.FinishedAt.Time
	}
}

func terminatedReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
