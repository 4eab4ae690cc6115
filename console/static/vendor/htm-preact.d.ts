// Types of what the console uses of htm-preact.js, for tsc --checkJs.
export function html(strings: TemplateStringsArray, ...values: any[]): any;
export function render(node: any, into: Element): void;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((old: T) => T)) => void];
export function useEffect(run: () => void | (() => void), deps?: any[]): void;
export function useLayoutEffect(run: () => void | (() => void), deps?: any[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, deps: any[]): T;
